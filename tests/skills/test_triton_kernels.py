"""The Triton templates are right on awkward shapes: in Triton's interpreter on a CPU, compiled on a GPU.

Triton has wheels for Linux on x86-64 only; there it is a development dependency, so a missing one is a failure.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import assets
from tests.skills.triton_errors import worst

HAS_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64"
needs_triton = pytest.mark.skipif(not HAS_WHEELS, reason="Triton has no wheels for this platform")
# one rounding of a half type is 2^-9 or 2^-12 of a value; the Llama order rounds twice
TOLERANCE = {"torch.float32": 2e-6, "torch.float16": 2e-3, "torch.bfloat16": 1.6e-2}


@needs_triton
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_kernels_agree_with_float64_on_awkward_shapes(device: str) -> None:
    env = {**os.environ, **({"TRITON_INTERPRET": "1"} if device == "cpu" else {})}
    script = str(Path(__file__).with_name("triton_errors.py"))
    ran = subprocess.run([sys.executable, script, device], capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    errors = json.loads(ran.stdout.splitlines()[-1])
    assert len(errors) > 40
    bad = {case: error for case, error in errors.items() if not error <= TOLERANCE[case.split()[1]]}
    assert not bad


@pytest.mark.parametrize("name", ["rms_norm", "gated_mul"])
def test_off_the_gpu_the_callers_own_code_runs(name: str) -> None:
    asset = assets.load("triton-on-rocm", name)
    x, y = torch.randn(2, 8), torch.randn(2, 8)
    if name == "rms_norm":
        assert asset.rms_norm(x, y[0], 1e-6) is None
    else:
        assert torch.equal(asset.gated_mul(x, y), torch.nn.functional.silu(x) * y)
        assert torch.equal(asset.gated_mul(x, y, "gelu"), torch.nn.functional.gelu(x) * y)
        tanh = torch.nn.functional.gelu(x, approximate="tanh") * y
        assert torch.equal(asset.gated_mul(x, y, "gelu_tanh"), tanh)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_code_sees_through_the_kernels(dtype: torch.dtype) -> None:
    norm, gate = assets.load("triton-on-rocm", "rms_norm"), assets.load("triton-on-rocm", "gated_mul")
    weight = torch.rand(256, device="cuda", dtype=dtype)

    def call(x: torch.Tensor) -> torch.Tensor:
        h: torch.Tensor = norm.rms_norm(x, weight, 1e-6)
        y: torch.Tensor = gate.gated_mul(gate.gated_mul(h, x), x, "gelu_tanh")
        return y

    x = torch.randn(5, 256, device="cuda", dtype=dtype)
    with torch.no_grad():
        compiled = torch.compile(call, fullgraph=True)(x)
        assert worst(compiled, call(x).double()) <= TOLERANCE[str(dtype)]


@pytest.mark.gpu
def test_a_gradient_goes_the_plain_way() -> None:
    norm = assets.load("triton-on-rocm", "rms_norm")
    x, weight = torch.randn(2, 8, device="cuda", requires_grad=True), torch.rand(8, device="cuda")
    assert norm.rms_norm(x, weight, 1e-6) is None
    with torch.no_grad():
        assert norm.rms_norm(x, weight, 1e-6) is not None
