"""The Triton templates are right on awkward shapes: in Triton's interpreter on a CPU, compiled on a GPU.

Triton has wheels for Linux on x86-64 only; there it is a development dependency, so a missing one is a failure.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import assets
from tests.skills.test_triton_kernels_apply import NAMES, entries
from tests.skills.triton_errors import worst

HAS_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64"
needs_triton = pytest.mark.skipif(not HAS_WHEELS, reason="Triton has no wheels for this platform")
# one rounding of a half type is 2^-9 or 2^-12 of a value; the Llama order rounds twice
TOLERANCE = {"torch.float32": 2e-6, "torch.float16": 2e-3, "torch.bfloat16": 1.6e-2}
load = partial(assets.load, "triton-on-rocm")


def answers(x: torch.Tensor, weight: torch.Tensor) -> dict[str, Any]:
    """Of each function that may return None."""
    loaded = {name: load(name) for name in NAMES}
    return {name: call(x, weight) for name, call in entries(loaded).items()}


@needs_triton
@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=pytest.mark.slow),
        pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.timeout(400)]),
    ],
)
def test_the_kernels_agree_with_float64_on_awkward_shapes(device: str) -> None:
    env = {**os.environ, **({"TRITON_INTERPRET": "1"} if device == "cpu" else {})}
    script = str(Path(__file__).with_name("triton_errors.py"))
    ran = subprocess.run([sys.executable, script, device], capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    errors = json.loads(ran.stdout.splitlines()[-1])
    assert len(errors) > 350
    bad = {case: error for case, error in errors.items() if not error <= TOLERANCE[case.split()[1]]}
    assert not bad


def test_off_the_gpu_the_callers_own_code_runs() -> None:
    x, y = torch.randn(2, 8), torch.randn(2, 8)
    assert set(answers(x, y[0]).values()) == {None}
    asset = load("gated_mul")
    assert torch.equal(asset.gated_mul(x, y), torch.nn.functional.silu(x) * y)
    assert torch.equal(asset.gated_mul(x, y, "gelu"), torch.nn.functional.gelu(x) * y)
    tanh = torch.nn.functional.gelu(x, approximate="tanh") * y
    assert torch.equal(asset.gated_mul(x, y, "gelu_tanh"), tanh)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_code_sees_through_the_kernels(dtype: torch.dtype) -> None:
    rms, layer, gate, router = (load(name) for name in ("rms_norm", "layer_norm", "gated_mul", "softmax_topk"))
    weight, bias = torch.rand(2, 256, device="cuda", dtype=dtype)

    def call(x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = gate.gated_mul(gate.gated_mul(rms.rms_norm(x, weight, 1e-6), x), x, "gelu_tanh")
        h, total = layer.add_layer_norm(h + 1, residual, weight, None, 1e-5)
        h, total = rms.add_rms_norm(h * 2, total, weight, 1e-6)
        chosen = router.softmax_topk(total + 1, 5, True, torch.float32)
        return total, layer.layer_norm(h - 1, weight, bias, 1e-5), *chosen

    x, residual = torch.randn(2, 5, 256, device="cuda", dtype=dtype)
    with torch.no_grad():
        *wanted, wanted_ids = call(x, residual)
        *compiled, ids = torch.compile(call, fullgraph=True)(x, residual)
        for out, plain in zip(compiled, wanted, strict=True):
            assert out.dtype == plain.dtype and worst(out, plain.double()) <= TOLERANCE[str(dtype)]
        assert torch.equal(ids, wanted_ids)


@pytest.mark.gpu
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_compiled_code_rotates_what_is_transposed(interleaved: bool, dynamic: bool | None) -> None:
    rotary = load("rotary").rotary

    def call(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = (x + 1).view(2, -1, 4, 64).transpose(1, 2)
        y: torch.Tensor = rotary(heads, cos, sin, interleaved)
        return y

    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for tokens in (7, 12):
            x = torch.randn(2, tokens, 256, device="cuda")
            cos, sin = torch.rand(2, tokens, 64, device="cuda")
            assert worst(compiled(x, cos, sin), call(x, cos, sin).double()) <= TOLERANCE["torch.float32"]


@pytest.mark.gpu
def test_gradients_go_the_plain_way() -> None:
    x, weight = torch.randn(2, 8, device="cuda", requires_grad=True), torch.rand(8, device="cuda")
    assert set(answers(x, weight).values()) == {None}
    with torch.no_grad():
        assert None not in answers(x, weight).values()


@pytest.mark.gpu
def test_what_the_kernels_do_not_compute_goes_the_plain_way() -> None:
    weight = torch.rand(8, device="cuda")
    square = torch.randn(8, 8, device="cuda")
    assert None not in answers(square, weight).values()
    assert set(answers(square.double(), weight.double()).values()) == {None}
    assert set(answers(square.t(), weight).values()) == {None}
    for other in (weight.half(), weight[:1], weight.cpu(), torch.rand(16, device="cuda")[::2]):
        assert load("layer_norm").layer_norm(square, other, None, 1e-5) is None
        assert load("layer_norm").layer_norm(square, None, other, 1e-5) is None
        assert load("rms_norm").add_rms_norm(square, square, other, 1e-6) is None
        assert load("layer_norm").add_layer_norm(square, square, weight, other, 1e-5) is None
    for other in (square.half(), square[:1], square.t(), square.cpu()):
        assert load("rms_norm").add_rms_norm(square, other, weight, 1e-6) is None
    assert answers(torch.randn(2, 8194, device="cuda"), torch.rand(8194, device="cuda"))["add_rms_norm"] is None


@pytest.mark.gpu
def test_tables_that_do_not_broadcast_and_odd_rows_are_not_rotated() -> None:
    rotary = load("rotary").rotary
    x = torch.randn(2, 3, 5, 8, device="cuda")
    for shape in ((8,), (5, 8), (3, 5, 8), (2, 1, 1, 8)):
        table = torch.randn(shape, device="cuda")
        assert torch.allclose(rotary(x, table, torch.zeros_like(table)), x * table)
    for shape in ((4,), (1,), (4, 8), (2, 5, 8), (1, 2, 3, 5, 8)):
        table = torch.randn(shape, device="cuda")
        assert rotary(x, table, table) is None
    assert rotary(x[None], x[None], x[None]) is None
    assert rotary(x[..., :7], x[..., :7], x[..., :7]) is None
    assert rotary(x, x, x.cpu()) is None


@pytest.mark.gpu
def test_more_experts_or_choices_than_a_wavefront_holds_are_left_alone() -> None:
    softmax_topk = load("softmax_topk").softmax_topk
    logits = torch.randn(2, 1025, device="cuda")
    assert softmax_topk(logits, 2) is None
    assert softmax_topk(logits[:, :1024], 2) is not None
    assert all(softmax_topk(logits[:, :64], k) is None for k in (0, 33, 65))
    assert softmax_topk(logits[:, :3], 4) is None
