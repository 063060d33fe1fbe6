"""The worst errors of the Triton templates against float64, as JSON; a process of its own, for the interpreter's sake.

TRITON_INTERPRET=1 python tests/skills/triton_errors.py cpu        Triton decides at import whether it interprets
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests import assets

NORM_SHAPES = [(1, 1), (3, 64), (2, 5, 100), (7, 127), (2, 4099), (2, 8193)]
GATE_SHAPES = [(1, 1), (3, 7, 150), (2, 1025), (1, 3000)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def worst(out: torch.Tensor, wanted: torch.Tensor, operands: torch.Tensor | None = None) -> float:
    """Largest error over the largest value of its row, or of the operands' product where results cancel."""
    scale = (wanted if operands is None else operands).abs().amax(-1, keepdim=True).clamp_min(1e-12)
    return float(((out.double() - wanted).abs() / scale).max())


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
    return x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + eps) * (offset + weight.double())


def norms(device: str) -> Iterator[tuple[str, float]]:
    asset: Any = assets.load("triton-on-rocm", "rms_norm")
    for dtype in DTYPES:
        for shape in NORM_SHAPES:
            for offset, cast_first in ((0.0, True), (1.0, False)):
                x = (torch.randn(shape) * torch.rand(*shape[:-1], 1) * 10).to(device, dtype)
                weight = (torch.rand(shape[-1]) + 0.5).to(device, dtype)
                out = asset._run(x, weight, 1e-6, offset, cast_first, asset._kernel)
                assert out.dtype == dtype and out.shape == x.shape
                yield f"rms_norm {dtype} {shape} {offset}", worst(out, normed(x, weight, 1e-6, offset))
    x, weight = torch.randn(6, 300, device=device)[:, 50:150] * 1e-3, torch.rand(100, device=device)
    out = asset._run(x, weight, 1e-6, 0.0, True, asset._kernel)
    yield "rms_norm torch.float32 strided and small", worst(out, normed(x, weight, 1e-6, 0.0))
    assert asset._run(x[:0], weight, 1e-6, 0.0, True, asset._kernel).shape == (0, 100)


def gates(device: str) -> Iterator[tuple[str, float]]:
    asset: Any = assets.load("triton-on-rocm", "gated_mul")
    for dtype in DTYPES:
        for shape in GATE_SHAPES:
            both = (torch.randn(*shape[:-1], 2 * shape[-1]) * 4).to(device, dtype)
            gate, up = both.chunk(2, dim=-1)  # slices of one tensor, as fused projections give them
            for name, plain in asset._PLAIN.items():
                out = asset._run(gate, up, name, asset._kernel)
                assert out.dtype == dtype and out.is_contiguous()
                wanted = plain(gate.double()) * up.double()
                yield f"{name} {dtype} {shape}", worst(out, wanted, gate.double() * up.double())


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps(dict([*norms(sys.argv[1]), *gates(sys.argv[1])])))
