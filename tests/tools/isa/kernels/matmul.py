"""A product of matrices, tile by tile."""

# ruff: noqa: F722
import triton
import triton.language as tl


@triton.jit
def matmul(
    a_ptr: "*bf16:16",
    b_ptr: "*bf16:16",
    c_ptr: "*bf16:16",
    k: "i32:16",
    a_stride: "i32:16",
    b_stride: "i32:16",
    c_stride: "i32:16",
    M: tl.constexpr = 128,
    N: tl.constexpr = 64,
    K: tl.constexpr = 32,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a = a_ptr + rows[:, None] * a_stride + inner[None, :]
    b = b_ptr + inner[:, None] * b_stride + columns[None, :]
    sums = tl.zeros((M, N), tl.float32)
    for _ in range(tl.cdiv(k, K)):
        sums = tl.dot(tl.load(a), tl.load(b), sums)
        a += K
        b += K * b_stride
    tl.store(c_ptr + rows[:, None] * c_stride + columns[None, :], sums.to(tl.bfloat16))
