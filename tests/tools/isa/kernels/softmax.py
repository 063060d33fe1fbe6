"""Softmax of a row that one program holds."""

# ruff: noqa: F722
import triton
import triton.language as tl


@triton.jit
def softmax(
    x_ptr: "*fp16:16", out_ptr: "*fp16:16", row_stride: "i32:16", columns: "i32:16", BLOCK: tl.constexpr = 4096
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * row_stride + at, (powers / tl.sum(powers, 0)).to(tl.float16), mask=at < columns)
