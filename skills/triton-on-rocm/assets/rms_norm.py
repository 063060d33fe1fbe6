# Ratchet: rms_norm.py. Copied into this repository by an accepted change; it needs torch, and triton where used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""RMS normalisation over the last dimension as one Triton kernel, alone or of a sum, for inference.

    n = x / sqrt(mean(x^2) + eps)                       in float32
    y = (offset + w) * round(n)      cast_first         Llama, Qwen, Mistral: n is rounded to x's dtype first
    y = round((offset + w) * n)      not cast_first     Gemma has offset 1

`add_rms_norm` normalises x + residual, rounded to x's dtype as the addition by itself gives it: each of x and residual
is read once, each of y and the total written once. Both return None where the kernel does not apply (see launching.py);
then the caller's own code runs.
"""

import torch

from .launching import Tuned, may_norm, tl, triton

MAX_TILE = 8192  # elements of a row that one program holds at once; wider rows are read twice, a wider sum is not taken
CHOICES = tuple({"num_warps": n} for n in (1, 2, 4, 8, 16))  # what a tuner may try
TUNED = Tuned({}, "")  # what a tuner found
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own


def rms_norm(x, weight, eps, offset=0.0, cast_first=True, only=None):
    """x: (..., n), weight: (n,). Returns y like x and contiguous, or None where this kernel does not apply."""
    if weight is None or not may_norm(x, eps, only, (weight,)):
        return None
    if torch.compiler.is_compiling():
        return _operator(x, weight, eps, offset, cast_first)
    return _run(x, weight, eps, offset, cast_first, _kernel)


def add_rms_norm(x, residual, weight, eps, offset=0.0, cast_first=True, only=None):
    """x, residual: (..., n); weight: (n,). Returns (y, total) like x, contiguous, or None where this does not apply."""
    if weight is None or not may_norm(x, eps, only, (weight,), residual) or x.shape[-1] > MAX_TILE:
        return None
    if torch.compiler.is_compiling():
        return _add_operator(x, residual, weight, eps, offset, cast_first)
    return _run_sum(x, residual, weight, eps, offset, cast_first, _kernel)


if triton is not None:

    @triton.jit
    def _kernel(
        x_ptr,
        residual_ptr,
        weight_ptr,
        y_ptr,
        total_ptr,
        x_row_stride,
        residual_row_stride,
        columns,
        # constants, because Python floats that come from compiled code are float64 and would widen the whole row
        EPS: tl.constexpr,
        OFFSET: tl.constexpr,
        CAST_FIRST: tl.constexpr,
        ADDS: tl.constexpr,
        ONE_TILE: tl.constexpr,
        TILE: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)  # rows * stride may pass 2^31
        x_ptr += row * x_row_stride
        y_ptr += row * columns
        index = tl.arange(0, TILE)
        if ONE_TILE:
            kept = index < columns
            x = tl.load(x_ptr + index, mask=kept, other=0.0).to(tl.float32)
            if ADDS:
                residual_ptr += row * residual_row_stride
                x += tl.load(residual_ptr + index, mask=kept, other=0.0).to(tl.float32)
                total = x.to(total_ptr.dtype.element_ty)
                tl.store(total_ptr + row * columns + index, total, mask=kept)
                x = total.to(tl.float32)
            scale = tl.rsqrt(tl.sum(x * x, 0) / columns + EPS)
            _store(x * scale, weight_ptr, y_ptr, index, kept, OFFSET, CAST_FIRST)
        else:
            squares = tl.zeros((TILE,), tl.float32)
            for start in range(0, columns, TILE):
                x = tl.load(x_ptr + start + index, mask=start + index < columns, other=0.0).to(tl.float32)
                squares += x * x
            scale = tl.rsqrt(tl.sum(squares, 0) / columns + EPS)
            for start in range(0, columns, TILE):
                kept = start + index < columns
                x = tl.load(x_ptr + start + index, mask=kept, other=0.0).to(tl.float32)
                _store(x * scale, weight_ptr, y_ptr, start + index, kept, OFFSET, CAST_FIRST)

    @triton.jit
    def _store(normed, weight_ptr, y_ptr, index, kept, OFFSET: tl.constexpr, CAST_FIRST: tl.constexpr):
        weight = tl.load(weight_ptr + index, mask=kept, other=0.0).to(tl.float32)
        if CAST_FIRST:
            normed = normed.to(y_ptr.dtype.element_ty).to(tl.float32)
        tl.store(y_ptr + index, ((OFFSET + weight) * normed).to(y_ptr.dtype.element_ty), mask=kept)

    @torch.library.triton_op(f"{_NAMESPACE}::rms_norm", mutates_args={})
    def _operator(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float, cast_first: bool) -> torch.Tensor:
        return _run(x, weight, eps, offset, cast_first, torch.library.wrap_triton(_kernel))

    @torch.library.triton_op(f"{_NAMESPACE}::add_rms_norm", mutates_args={})
    def _add_operator(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float, cast_first: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _run_sum(x, residual, weight, eps, offset, cast_first, torch.library.wrap_triton(_kernel))


def _run(x, weight, eps, offset, cast_first, kernel):
    return _launched(x, None, weight, eps, offset, cast_first, kernel)[0]


def _run_sum(x, residual, weight, eps, offset, cast_first, kernel):
    return _launched(x, residual, weight, eps, offset, cast_first, kernel)


def _launched(x, residual, weight, eps, offset, cast_first, kernel):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = None if residual is None else torch.empty_like(y)
    if y.numel() > 0:
        columns = x.shape[-1]
        rows = x.reshape(-1, columns)
        added = rows if residual is None else residual.reshape(-1, columns)
        tile = min(triton.next_power_of_2(columns), MAX_TILE)
        # rows stand in for what is None, and are not touched there
        kernel[(rows.shape[0],)](
            rows,
            added,
            weight,
            y,
            rows if total is None else total,
            rows.stride(0),
            added.stride(0),
            columns,
            EPS=float(eps),
            OFFSET=float(offset),
            CAST_FIRST=bool(cast_first),
            ADDS=residual is not None,
            ONE_TILE=columns <= tile,
            TILE=tile,
            **TUNED.options(kernel, rows.shape[0], columns, {"num_warps": 4 if tile < 2048 else 8}),
        )
    return y, total
