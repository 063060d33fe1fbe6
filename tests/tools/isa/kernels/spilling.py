"""A product whose tile of results is larger than all registers of its one wave."""

# ruff: noqa: F722
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=1, num_stages=1)], key=[])
@triton.jit
def too_large(
    a_ptr: "*fp16:16",
    b_ptr: "*fp16:16",
    c_ptr: "*fp32:16",
    k: "i32:16",
    M: tl.constexpr = 256,
    N: tl.constexpr = 128,
    K: tl.constexpr = 16,
):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :])
        b = tl.load(b_ptr + (start + inner)[:, None] * N + columns[None, :])
        sums = tl.dot(a, b, sums)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sums)
