# Ratchet: add_norm.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The addition to the residual stream and the norm after it as one Triton kernel, for inference.

    total = round(x + residual)                     in x's dtype, as the addition by itself gives it

    n = total / sqrt(mean(total^2) + eps)           add_rms_norm, in float32
    y = (offset + w) * round(n)      cast_first         Llama, Qwen, Mistral: n is rounded to x's dtype first
    y = round((offset + w) * n)      not cast_first     Gemma has offset 1

    d = total - mean(total)                         add_layer_norm, in float32
    y = round(d / sqrt(mean(d^2) + eps) * weight + bias)

Each of x and residual is read once, each of y and total written once. The functions return None where the kernels do
not apply (see launching.py) and for rows wider than MAX_TILE; then the caller's own code runs.
"""

import torch

from .launching import Tuned, may_norm, tl, triton

MAX_TILE = 8192  # elements of a row, which one program holds
CHOICES = tuple({"num_warps": n} for n in (1, 2, 4, 8, 16))  # what a tuner may try
TUNED = Tuned({}, "")  # what a tuner found
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own


def add_rms_norm(x, residual, weight, eps, offset=0.0, cast_first=True, only=None):
    """x, residual: (..., n); weight: (n,). Returns (y, total) like x, contiguous, or None where this does not apply."""
    if weight is None or not _applies(x, residual, eps, only, (weight,)):
        return None
    if torch.compiler.is_compiling():
        return _rms_operator(x, residual, weight, eps, offset, cast_first)
    return _run_rms(x, residual, weight, eps, offset, cast_first, _rms_kernel)


def add_layer_norm(x, residual, weight, bias, eps, only=None):
    """x, residual: (..., n); weight, bias: (n,) or None. Returns (y, total) like x, contiguous, or None (see above)."""
    if not _applies(x, residual, eps, only, (weight, bias)):
        return None
    if torch.compiler.is_compiling():
        return _layer_operator(x, residual, weight, bias, eps)
    return _run_layer(x, residual, weight, bias, eps, _layer_kernel)


def _applies(x, residual, eps, only, vectors):
    return may_norm(x, eps, only, vectors, residual) and x.shape[-1] <= MAX_TILE


if triton is not None:

    @triton.jit
    def _rms_kernel(
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
        TILE: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)  # rows * stride may pass 2^31
        index = tl.arange(0, TILE)
        kept = index < columns
        total = _add(
            x_ptr + row * x_row_stride, residual_ptr + row * residual_row_stride, total_ptr + row * columns, index, kept
        )
        normed = total * tl.rsqrt(tl.sum(total * total, 0) / columns + EPS)
        if CAST_FIRST:
            normed = normed.to(y_ptr.dtype.element_ty).to(tl.float32)
        weight = tl.load(weight_ptr + index, mask=kept, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * columns + index, ((OFFSET + weight) * normed).to(y_ptr.dtype.element_ty), mask=kept)

    @triton.jit
    def _layer_kernel(
        x_ptr,
        residual_ptr,
        weight_ptr,
        bias_ptr,
        y_ptr,
        total_ptr,
        x_row_stride,
        residual_row_stride,
        columns,
        EPS: tl.constexpr,
        HAS_WEIGHT: tl.constexpr,
        HAS_BIAS: tl.constexpr,
        TILE: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        index = tl.arange(0, TILE)
        kept = index < columns
        total = _add(
            x_ptr + row * x_row_stride, residual_ptr + row * residual_row_stride, total_ptr + row * columns, index, kept
        )
        off = tl.where(kept, total - tl.sum(total, 0) / columns, 0.0)
        normed = off * tl.rsqrt(tl.sum(off * off, 0) / columns + EPS)
        if HAS_WEIGHT:
            normed *= tl.load(weight_ptr + index, mask=kept, other=0.0).to(tl.float32)
        if HAS_BIAS:
            normed += tl.load(bias_ptr + index, mask=kept, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * columns + index, normed.to(y_ptr.dtype.element_ty), mask=kept)

    @triton.jit
    def _add(x_ptr, residual_ptr, total_ptr, index, kept):
        """One row of the total, which is written, as float32."""
        x = tl.load(x_ptr + index, mask=kept, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + index, mask=kept, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + index, total, mask=kept)
        return total.to(tl.float32)

    @torch.library.triton_op(f"{_NAMESPACE}::add_rms_norm", mutates_args={})
    def _rms_operator(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: float, cast_first: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _run_rms(x, residual, weight, eps, offset, cast_first, torch.library.wrap_triton(_rms_kernel))

    @torch.library.triton_op(f"{_NAMESPACE}::add_layer_norm", mutates_args={})
    def _layer_operator(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _run_layer(x, residual, weight, bias, eps, torch.library.wrap_triton(_layer_kernel))


def _run_rms(x, residual, weight, eps, offset, cast_first, kernel):
    y, total = _results(x)
    if y.numel() > 0:
        rows, residual_rows, columns, launch = _rows(kernel, x, residual)
        kernel[(rows.shape[0],)](
            rows,
            residual_rows,
            weight,
            y,
            total,
            rows.stride(0),
            residual_rows.stride(0),
            columns,
            EPS=float(eps),
            OFFSET=float(offset),
            CAST_FIRST=bool(cast_first),
            **launch,
        )
    return y, total


def _run_layer(x, residual, weight, bias, eps, kernel):
    y, total = _results(x)
    if y.numel() > 0:
        rows, residual_rows, columns, launch = _rows(kernel, x, residual)
        # rows stand in for what is None, and are not read there
        kernel[(rows.shape[0],)](
            rows,
            residual_rows,
            rows if weight is None else weight,
            rows if bias is None else bias,
            y,
            total,
            rows.stride(0),
            residual_rows.stride(0),
            columns,
            EPS=float(eps),
            HAS_WEIGHT=weight is not None,
            HAS_BIAS=bias is not None,
            **launch,
        )
    return y, total


def _results(x):
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))


def _rows(kernel, x, residual):
    """Both as (rows, columns), the columns, and the launch that holds a row."""
    columns = x.shape[-1]
    tile = triton.next_power_of_2(columns)
    rows = x.reshape(-1, columns)
    launch = TUNED.options(kernel, rows.shape[0], columns, {"num_warps": 4 if tile < 2048 else 8})
    return rows, residual.reshape(-1, columns), columns, {"TILE": tile, **launch}
