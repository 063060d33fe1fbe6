# Ratchet: rotary.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Rotary position embedding of queries or keys as one Triton kernel, for inference.

    y = x * cos + rotate(x) * sin

    rotate(x) = [-x2, x1] of the halves x = [x1, x2]                          Llama, Qwen, Mistral, NeoX
    rotate(x)[2i] = -x[2i + 1], rotate(x)[2i + 1] = x[2i]     interleaved     GPT-J

in float32, rounded once, where eager code rounds each product of 16-bit tensors. `rotary` returns None where the kernel
does not apply (see launching.py), for rows that are not contiguous, for more than four dims, and for tables of cos and
sin that do not broadcast to x; then the caller's own code runs.
"""

import torch

from .launching import Tuned, may_launch, tl, triton

BLOCK = 1024  # pairs of one program, 8 to a lane: loads of 16-bit elements move 16 bytes each
MOST = 2**31  # elements of x: rows are told apart in 32 bits, where dividing is cheap
CHOICES = tuple(
    {"BLOCK": b, "num_warps": n} for b in (256, 512, 1024, 2048) for n in (1, 2, 4, 8)
)  # what a tuner may try
TUNED = Tuned({}, "")  # what a tuner found
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own


def rotary(x, cos, sin, interleaved=False):
    """x: (..., dim), up to four dims, in any order in memory; cos, sin: broadcast to x, with all of dim.

    Returns y of x's shape, or None where this kernel does not apply. Its dtype is the one that torch promotes the three
    to. It is contiguous, though eager code keeps x's order in memory: so a transposed view (batch, heads, tokens, dim)
    leaves with the tokens of a head next to each other. Attention then reads a head as one block, a batched product
    takes it without a copy, and a cache in this order is written in whole stretches.
    """
    if not _applies(x, cos, sin):
        return None
    if torch.compiler.is_compiling():
        return _operator(x, cos, sin, interleaved)
    return _run(x, cos, sin, interleaved, _kernel)


def _applies(x, cos, sin):
    if not may_launch(x, cos, sin) or x.dim() > 4 or x.numel() > MOST:
        return False
    if x.shape[-1] % 2 or x.shape[-1] > 2 * BLOCK:
        return False
    for table in (cos, sin):
        if table.dim() > x.dim() or table.shape[-1] != x.shape[-1]:
            return False
        if any(size not in (1, wanted) for size, wanted in zip(table.shape[::-1], x.shape[::-1], strict=False)):
            return False
    return x.stride(-1) == cos.stride(-1) == sin.stride(-1) == 1


if triton is not None:

    @triton.jit
    def _kernel(
        x_ptr,
        cos_ptr,
        sin_ptr,
        y_ptr,
        rows,
        size_1,
        size_2,
        x_stride_0,
        x_stride_1,
        x_stride_2,
        cos_stride_0,
        cos_stride_1,
        cos_stride_2,
        sin_stride_0,
        sin_stride_1,
        sin_stride_2,
        DIM: tl.constexpr,
        INTERLEAVED: tl.constexpr,
        ROWS: tl.constexpr,
        TILE: tl.constexpr,
    ):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
        at_0 = (row // size_2 // size_1).to(tl.int64)
        at_1 = (row // size_2 % size_1).to(tl.int64)
        at_2 = (row % size_2).to(tl.int64)
        x_ptr += at_0 * x_stride_0 + at_1 * x_stride_1 + at_2 * x_stride_2
        cos_ptr += at_0 * cos_stride_0 + at_1 * cos_stride_1 + at_2 * cos_stride_2
        sin_ptr += at_0 * sin_stride_0 + at_1 * sin_stride_1 + at_2 * sin_stride_2
        y_ptr += row.to(tl.int64) * DIM
        if INTERLEAVED:
            column = tl.arange(0, TILE)[None, :]
            kept = (row < rows) & (column < DIM)
            x = tl.load(x_ptr + column, mask=kept, other=0.0).to(tl.float32)
            cos = tl.load(cos_ptr + column, mask=kept, other=0.0).to(tl.float32)
            sin = tl.load(sin_ptr + column, mask=kept, other=0.0).to(tl.float32)
            x1, x2 = tl.split(tl.reshape(x, (ROWS, TILE // 2, 2)))
            rotated = tl.reshape(tl.join(-x2, x1), (ROWS, TILE))
            tl.store(y_ptr + column, (x * cos + rotated * sin).to(y_ptr.dtype.element_ty), mask=kept)
        else:
            column = tl.arange(0, TILE // 2)[None, :]
            kept = (row < rows) & (column < DIM // 2)
            other = column + DIM // 2
            x1 = tl.load(x_ptr + column, mask=kept, other=0.0).to(tl.float32)
            x2 = tl.load(x_ptr + other, mask=kept, other=0.0).to(tl.float32)
            cos = tl.load(cos_ptr + column, mask=kept, other=0.0).to(tl.float32)
            sin = tl.load(sin_ptr + column, mask=kept, other=0.0).to(tl.float32)
            tl.store(y_ptr + column, (x1 * cos - x2 * sin).to(y_ptr.dtype.element_ty), mask=kept)
            cos = tl.load(cos_ptr + other, mask=kept, other=0.0).to(tl.float32)
            sin = tl.load(sin_ptr + other, mask=kept, other=0.0).to(tl.float32)
            tl.store(y_ptr + other, (x2 * cos + x1 * sin).to(y_ptr.dtype.element_ty), mask=kept)

    @torch.library.triton_op(f"{_NAMESPACE}::rotary", mutates_args={})
    def _operator(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
        return _run(x, cos, sin, interleaved, torch.library.wrap_triton(_kernel))


def _run(x, cos, sin, interleaved, kernel):
    dtype = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), sin.dtype)
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    if y.numel() == 0:
        return y
    dim = x.shape[-1]
    size_1, size_2 = (1, 1, *x.shape[:-1])[-2:]
    rows, tile = y.numel() // dim, triton.next_power_of_2(dim)
    launch = dict(TUNED.options(kernel, rows, dim, {"BLOCK": BLOCK, "num_warps": 2}))
    rows_of_one = max(1, 2 * launch.pop("BLOCK") // tile)
    kernel[(triton.cdiv(rows, rows_of_one),)](
        x,
        cos,
        sin,
        y,
        rows,
        size_1,
        size_2,
        *_strides(x),
        *_strides(cos),
        *_strides(sin),
        DIM=dim,
        INTERLEAVED=bool(interleaved),
        ROWS=rows_of_one,
        TILE=tile,
        **launch,
    )
    return y


def _strides(tensor):
    """Of the three dims before the last, 0 where there is none or it is broadcast."""
    strides = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return (0, 0, 0, *strides[:-1])[-3:]
