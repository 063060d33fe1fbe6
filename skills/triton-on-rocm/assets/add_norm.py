# Ratchet: add_norm.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The addition to the residual stream and the norm after it as one Triton kernel, for inference.

    total = round(x + residual)                     in x's dtype, as the addition by itself gives it

    n = total / sqrt(mean(total^2) + eps)           add_rms_norm, in float32
    y = (offset + w) * round(n)      cast_first         Llama, Qwen, Mistral: n is rounded to x's dtype first
    y = round((offset + w) * n)      not cast_first     Gemma has offset 1

    d = total - mean(total)                         add_layer_norm, in float32
    y = round(d / sqrt(mean(d^2) + eps) * weight + bias)

Each of x and residual is read once, each of y and total written once. The functions answer None where the kernels do
not apply, and the caller's own code runs: off the GPU, where a gradient is needed, for float64, for rows that are not
contiguous or wider than MAX_TILE, for x and residual of different shapes, where dtypes or devices differ, for an eps
that is no number, and under autocast, in which torch's own norms give float32. Outside of compiled code also on a GPU
that is not the current one, on which Triton launches, for subclasses of tensors, and under tracing, dispatch modes,
function transforms and forward-mode AD, none of which sees a launch.

`only` is the dtype, by its name, that x must have: where the caller's own code is known to compute this in no other.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # then the functions always answer None
    triton = None

MAX_TILE = 8192  # elements of a row, which one program holds
CHOICES = tuple({"num_warps": n} for n in (1, 2, 4, 8, 16))  # what a tuner may try
TUNED, TUNED_ON = {}, ""  # (rows, columns) -> the fastest of them, by measuring on the device of that name
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def add_rms_norm(x, residual, weight, eps, offset=0.0, cast_first=True, only=None):
    """x, residual: (..., n); weight: (n,). Returns (y, total) like x, contiguous, or None where this does not apply."""
    if weight is None or not _applies(x, residual, eps, only, weight):
        return None
    if torch.compiler.is_compiling():
        return _rms_operator(x, residual, weight, eps, offset, cast_first)
    return _run_rms(x, residual, weight, eps, offset, cast_first, _rms_kernel)


def add_layer_norm(x, residual, weight, bias, eps, only=None):
    """x, residual: (..., n); weight, bias: (n,) or None. Returns (y, total) like x, contiguous, or None (see above)."""
    if not _applies(x, residual, eps, only, weight, bias):
        return None
    if torch.compiler.is_compiling():
        return _layer_operator(x, residual, weight, bias, eps)
    return _run_layer(x, residual, weight, bias, eps, _layer_kernel)


def _applies(x, residual, eps, only, *vectors):
    if triton is None or not x.is_cuda or not _may_launch(x) or (only is not None and x.dtype != getattr(torch, only)):
        return False
    if torch.is_autocast_enabled("cuda") or not isinstance(eps, (int, float)):
        return False
    if x.dtype not in _DTYPES or x.dim() == 0 or x.shape[-1] > MAX_TILE:
        return False
    if x.shape != residual.shape or x.stride(-1) != 1 or residual.stride(-1) != 1:
        return False
    others = [residual, *(vector for vector in vectors if vector is not None)]
    for vector in others[1:]:
        if vector.shape != x.shape[-1:] or vector.stride(0) != 1:
            return False
    if any(other.dtype != x.dtype or other.device != x.device for other in others):
        return False
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *others)))


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
    launch = _launch(kernel, rows.shape[0], columns, {"num_warps": 4 if tile < 2048 else 8})
    return rows, residual.reshape(-1, columns), columns, {"TILE": tile, **launch}


def _may_launch(x):
    """Whether operations mean and record nothing else, on the current device. Compiled code sees to that by itself."""
    if torch.compiler.is_compiling():
        return True
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.get_device() != torch.cuda.current_device():
        return False
    return not (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def _launch(kernel, rows, columns, rule):
    """The options of a launch: what was measured for these columns and the next larger number of rows, else the rule.

    Code that torch.compile makes takes only the options that the rule has.
    """
    seen = sorted(r for r, c in TUNED if c == columns)
    if not seen or not seen[0] <= rows <= seen[-1] or torch.cuda.get_device_name() != TUNED_ON:
        return rule
    tuned, direct = TUNED[next(r for r in seen if rows <= r), columns], isinstance(kernel, triton.JITFunction)
    return {**rule, **{name: value for name, value in tuned.items() if direct or name in rule}}
