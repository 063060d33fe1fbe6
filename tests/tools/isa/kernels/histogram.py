"""How often each value occurs, by atomic additions in a loop."""

# ruff: noqa: F722
import triton
import triton.language as tl


@triton.jit
def histogram(x_ptr: "*i32:16", counts_ptr: "*i32:16", n: "i32:16", BLOCK: tl.constexpr = 256):
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.atomic_add(counts_ptr + tl.load(x_ptr + at, mask=at < n, other=0), 1, mask=at < n)
