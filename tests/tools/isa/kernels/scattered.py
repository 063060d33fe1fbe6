"""A column at a time of a matrix that is stored by rows: neighbouring lanes read far from each other."""

# ruff: noqa: F722, F821
import triton
import triton.language as tl


@triton.jit
def column_sums(x_ptr: "*bf16:16", out_ptr: "*fp32:16", rows: "i32", stride: "i32", BLOCK: tl.constexpr = 1024):
    column = tl.program_id(0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + at * stride + column, mask=at < rows, other=0.0).to(tl.float32)
    tl.store(out_ptr + column, tl.sum(sums, 0))
