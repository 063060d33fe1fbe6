"""Layer normalisation, with a helper that is no kernel of its own."""

# ruff: noqa: F722, F821
import triton
import triton.language as tl


@triton.jit
def _mean(x, columns):
    return tl.sum(x, 0) / columns


@triton.jit
def layer_norm(
    x_ptr: "*bf16:16",
    weight_ptr: "*bf16:16",
    bias_ptr: "*bf16:16",
    out_ptr: "*bf16:16",
    columns: "i32:16",
    eps: "fp32",
    BLOCK: tl.constexpr = 2048,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    kept = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=kept, other=0.0).to(tl.float32)
    off = tl.where(kept, x - _mean(x, columns), 0.0)
    normed = off * tl.rsqrt(_mean(off * off, columns) + eps)
    weight = tl.load(weight_ptr + at, mask=kept).to(tl.float32)
    bias = tl.load(bias_ptr + at, mask=kept).to(tl.float32)
    tl.store(out_ptr + row * columns + at, (normed * weight + bias).to(tl.bfloat16), mask=kept)
