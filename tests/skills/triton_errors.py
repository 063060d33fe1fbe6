"""The worst errors of the Triton templates against float64, as JSON; a process of its own, for the interpreter's sake.

TRITON_INTERPRET=1 python tests/skills/triton_errors.py cpu        Triton decides at import whether it interprets
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests import assets

NORM_SHAPES = [(1, 1), (3, 64), (2, 5, 100), (7, 127), (2, 4099), (2, 8193)]
GATE_SHAPES = [(1, 1), (3, 7, 150), (2, 1025), (1, 3000)]
# x, and what cos and sin are
ROTARY_SHAPES = [
    ((2,), (2,)),
    ((5, 6), (5, 6)),
    ((7, 3, 10), (3, 10)),
    ((3, 1, 130), (130,)),
    ((2, 3, 5, 64), (5, 64)),
    ((2, 3, 5, 66), (1, 1, 5, 66)),
    ((2, 3, 5, 34), (2, 1, 5, 34)),
    ((2, 9, 130, 16), (1, 130, 16)),
    ((1, 2, 1, 2048), (1, 1, 1, 2048)),
]
# tokens and experts, and k
CHOICES = [((1, 1), 1), ((5, 3), 3), ((2, 3, 60), 6), ((4, 64), 8), ((3, 65), 5), ((2, 1000), 32), ((3, 1024), 1)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def worst(out: torch.Tensor, wanted: torch.Tensor, operands: torch.Tensor | None = None) -> float:
    """Largest error over the largest value of its row, or of the operands' product where results cancel."""
    scale = (wanted if operands is None else operands).abs().amax(-1, keepdim=True).clamp_min(1e-12)
    return float(((out.double() - wanted).abs() / scale).max())


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float) -> torch.Tensor:
    return x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + eps) * (offset + weight.double())


def layer_normed(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    vectors = [None if vector is None else vector.double() for vector in (weight, bias)]
    return F.layer_norm(x.double(), x.shape[-1:], *vectors, eps=eps)


def rotated(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


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


def layer_norms(device: str) -> Iterator[tuple[str, float]]:
    asset: Any = assets.load("triton-on-rocm", "layer_norm")
    for dtype, shape in product(DTYPES, NORM_SHAPES):
        x = (torch.randn(shape) * torch.rand(*shape[:-1], 1) * 10).to(device, dtype)
        weight, bias = (torch.rand(2, shape[-1]) + 0.5).to(device, dtype)
        for vectors in ((weight, bias), (weight, None), (None, bias), (None, None)):
            out = asset._run(x, *vectors, 1e-5, asset._kernel)
            assert out.dtype == dtype and out.shape == x.shape and out.is_contiguous()
            case = f"layer_norm {dtype} {shape} {[vector is not None for vector in vectors]}"
            yield case, worst(out, layer_normed(x, *vectors, 1e-5))
    weight, bias = torch.rand(2, 100, device=device)
    for name, x in {
        "strided": torch.randn(6, 300, device=device)[:, 50:150],
        "transposed": torch.randn(3, 5, 2, 100, device=device).transpose(1, 2),
    }.items():
        out = asset._run(x, weight, bias, 1e-5, asset._kernel)
        yield f"layer_norm torch.float32 {name}", worst(out, layer_normed(x, weight, bias, 1e-5))
        assert asset._run(x[:0], weight, bias, 1e-5, asset._kernel).shape == (0, *x.shape[1:])
    for shape in ((4, 1000), (2, 8193)):  # a mean of squares less the square of the mean would lose all digits
        x = torch.randn(shape, device=device) + 1000
        out = asset._run(x, None, None, 1e-5, asset._kernel)
        yield f"layer_norm torch.float32 {shape} far from zero", worst(out, layer_normed(x, None, None, 1e-5), x)


def added_norms(device: str) -> Iterator[tuple[str, float]]:
    rms, layer = (assets.load("triton-on-rocm", name) for name in ("rms_norm", "layer_norm"))
    exact = device == "cpu"  # compilers may sum in another order
    for dtype, shape in product(DTYPES, [*NORM_SHAPES[:-1], (2, 8192)]):
        wide = (torch.randn(*shape[:-1], 2 * shape[-1]) * 4).to(device, dtype)
        x, residual = wide[..., shape[-1] :], torch.randn(shape).to(device, dtype)  # rows of their own strides
        weight, bias = (torch.rand(2, shape[-1]) + 0.5).to(device, dtype)
        for offset, cast_first in ((0.0, True), (1.0, False)):
            out, total = rms._run_sum(x, residual, weight, 1e-6, offset, cast_first, rms._kernel)
            assert _is_sum(total, x, residual) and total.is_contiguous()
            assert out.dtype == dtype and out.shape == x.shape and out.is_contiguous()
            alone = rms._run(total, weight, 1e-6, offset, cast_first, rms._kernel)
            assert torch.equal(out, alone) or not exact
            yield f"add_rms_norm {dtype} {shape} {offset}", worst(out, normed(total, weight, 1e-6, offset))
        for vectors in ((weight, bias), (None, None)):
            out, total = layer._run_sum(residual, x, *vectors, 1e-5, layer._kernel)
            assert _is_sum(total, residual, x) and total.is_contiguous()
            assert out.dtype == dtype and out.shape == x.shape and out.is_contiguous()
            assert torch.equal(out, layer._run(total, *vectors, 1e-5, layer._kernel)) or not exact
            case = f"add_layer_norm {dtype} {shape} {vectors[0] is not None}"
            yield case, worst(out, layer_normed(total, *vectors, 1e-5))
    x, residual = torch.randn(2, 3, 5, 2, 100, device=device).transpose(2, 3)
    weight, bias = torch.rand(2, 100, device=device)
    out, total = rms._run_sum(x, residual, weight, 1e-6, 0.0, True, rms._kernel)
    yield "add_rms_norm torch.float32 transposed", worst(out, normed(x + residual, weight, 1e-6, 0.0))
    out, total = layer._run_sum(x[:0], residual[:0], weight, bias, 1e-5, layer._kernel)
    assert out.shape == total.shape == (0, *x.shape[1:])


def _is_sum(total: torch.Tensor, x: torch.Tensor, residual: torch.Tensor) -> bool:
    """To the bit; but Triton's interpreter cuts float32 off to bfloat16 where a GPU rounds."""
    if total.device.type == "cpu" and total.dtype == torch.bfloat16:
        return torch.allclose(total, x + residual, rtol=2**-7, atol=0)
    return torch.equal(total, x + residual)


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


def rotations(device: str) -> Iterator[tuple[str, float]]:
    asset: Any = assets.load("triton-on-rocm", "rotary")
    for dtype, (shape, table), interleaved in product(DTYPES, ROTARY_SHAPES, (False, True)):
        x = torch.randn(*shape[:-1], 3 * shape[-1]).to(device, dtype)
        if len(shape) == 4:  # heads before tokens, in memory the other way round
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        x = x[..., shape[-1] : 2 * shape[-1]]
        for table_dtype in dict.fromkeys((dtype, torch.float32, torch.bfloat16)):
            cos, sin = torch.randn(2, *table).to(device, table_dtype)
            out = asset._run(x, cos, sin, interleaved, asset._kernel)
            assert out.dtype == (x * cos).dtype and out.shape == x.shape and out.is_contiguous()
            parts = x.double() * cos.double(), rotated(x.double(), interleaved) * sin.double()
            operands = parts[0].abs() + parts[1].abs()
            yield (
                f"rotary {out.dtype} {shape} {table} {interleaved} {dtype} {table_dtype}",
                worst(out, parts[0] + parts[1], operands),
            )
    assert asset._run(x[:0], cos, sin, True, asset._kernel).shape == (0, *x.shape[1:])


def choices(device: str) -> Iterator[tuple[str, float]]:
    asset: Any = assets.load("triton-on-rocm", "softmax_topk")
    for dtype, (shape, k), renormalize in product(DTYPES, CHOICES, (False, True)):
        logits = (torch.randn(shape) * 3).to(device, dtype)
        yield f"softmax_topk torch.float32 {shape} {k} {renormalize} {dtype}", _chosen(asset, logits, k, renormalize)
    halves = torch.randint(-3, 4, (2, 3, 4, 50), device=device) / 2  # many equals
    yield "softmax_topk torch.float32 equals", _chosen(asset, halves.transpose(1, 2), 9, True)
    some = halves.masked_fill(halves < 1.25, -torch.inf)[0, 0, :, 10:50]
    yield "softmax_topk torch.float32 few that are not zero", _chosen(asset, some, 20, False)
    assert asset._run(some[:0], 2, True, asset._kernel)[1].shape == (0, 2)
    for row in ([1.0, torch.nan, 2.0], [1.0, torch.inf, 2.0], [-torch.inf] * 3, [torch.nan] * 3):
        for renormalize in (False, True):
            weights, ids = asset._run(torch.tensor([row], device=device), 2, renormalize, asset._kernel)
            assert weights.isnan().all() and ids.tolist() == [[0, 1]]


def _chosen(asset: Any, logits: torch.Tensor, k: int, renormalize: bool) -> float:
    weights, ids = asset._run(logits, k, renormalize, asset._kernel)
    wanted, order = logits.double().softmax(-1).sort(dim=-1, descending=True, stable=True)
    wanted = wanted[..., :k] / (wanted[..., :k].sum(-1, keepdim=True) if renormalize else 1)
    assert weights.dtype == torch.float32 and weights.is_contiguous() and ids.is_contiguous()
    assert torch.equal(ids, order[..., :k])
    return worst(weights, wanted)


if __name__ == "__main__":
    torch.manual_seed(0)
    groups = (norms, layer_norms, added_norms, gates, rotations, choices)
    print(json.dumps({case: error for group in groups for case, error in group(sys.argv[1])}))
