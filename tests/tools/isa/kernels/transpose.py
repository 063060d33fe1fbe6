"""A matrix stored the other way round: what is read along rows is written along columns."""

# ruff: noqa: F722
import triton
import triton.language as tl


@triton.jit
def transpose(x_ptr: "*fp16:16", out_ptr: "*fp16:16", stride: "i32:16", out_stride: "i32:16", BLOCK: tl.constexpr = 64):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows[:, None] * stride + columns[None, :])
    tl.store(out_ptr + columns[None, :] * out_stride + rows[:, None], x)
