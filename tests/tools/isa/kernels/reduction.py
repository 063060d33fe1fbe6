"""The sum of squares of a row of any length, and a second kernel, so that one must be named."""

# ruff: noqa: F722, F821
import triton
import triton.language as tl


@triton.jit
def sum_of_squares(x_ptr: "*fp32:16", out_ptr: "*fp32:16", columns: "i32:16", BLOCK: tl.constexpr = 1024):
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        sums += x * x
    tl.store(out_ptr + row, tl.sum(sums, 0))


@triton.jit
def scale(x_ptr: "*fp32:16", by: "fp32", n: "i32:16", BLOCK: tl.constexpr = 1024):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * by, mask=at < n)
