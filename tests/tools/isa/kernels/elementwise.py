"""GELU (tanh form) of a sum, over a flat grid."""

# ruff: noqa: F722
import triton
import triton.language as tl


@triton.jit
def gelu_of_sum(
    x_ptr: "*bf16:16",
    y_ptr: "*bf16:16",
    out_ptr: "*bf16:16",
    n: "i32:16",
    BLOCK: tl.constexpr = 1024,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = at < n
    x = tl.load(x_ptr + at, mask=kept).to(tl.float32) + tl.load(y_ptr + at, mask=kept).to(tl.float32)
    gelu = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    tl.store(out_ptr + at, gelu.to(tl.bfloat16), mask=kept)
