"""Kernels for AMD architectures with one property each."""

# ruff: noqa: F722, F821
import triton
import triton.language as tl


# GELU (tanh form) of a sum, over a flat grid.
@triton.jit
def elementwise(x_ptr: "*bf16:16", y_ptr: "*bf16:16", out_ptr: "*bf16:16", n: "i32:16", BLOCK: tl.constexpr = 1024):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = at < n
    x = tl.load(x_ptr + at, mask=kept).to(tl.float32) + tl.load(y_ptr + at, mask=kept).to(tl.float32)
    gelu = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    tl.store(out_ptr + at, gelu.to(tl.bfloat16), mask=kept)


# How often each value occurs, by atomic additions in a loop.
@triton.jit
def histogram(x_ptr: "*i32:16", counts_ptr: "*i32:16", n: "i32:16", BLOCK: tl.constexpr = 256):
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.atomic_add(counts_ptr + tl.load(x_ptr + at, mask=at < n, other=0), 1, mask=at < n)


# A product of matrices, tile by tile.
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


# The sum of squares of a row of any length.
@triton.jit
def reduction(x_ptr: "*fp32:16", out_ptr: "*fp32:16", columns: "i32:16", BLOCK: tl.constexpr = 1024):
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        sums += x * x
    tl.store(out_ptr + row, tl.sum(sums, 0))


# A column at a time of a matrix that is stored by rows: neighbouring lanes read far from each other.
@triton.jit
def scattered(x_ptr: "*bf16:16", out_ptr: "*fp32:16", rows: "i32", stride: "i32", BLOCK: tl.constexpr = 1024):
    column = tl.program_id(0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + at * stride + column, mask=at < rows, other=0.0).to(tl.float32)
    tl.store(out_ptr + column, tl.sum(sums, 0))


# Softmax of a row that one program holds.
@triton.jit
def softmax(
    x_ptr: "*fp16:16", out_ptr: "*fp16:16", row_stride: "i32:16", columns: "i32:16", BLOCK: tl.constexpr = 4096
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * row_stride + at, (powers / tl.sum(powers, 0)).to(tl.float16), mask=at < columns)


# A product whose tile of results is larger than all registers of its one wave.
@triton.autotune(configs=[triton.Config({}, num_warps=1, num_stages=1)], key=[])
@triton.jit
def spilling(
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


# A matrix stored the other way round: what is read along rows is written along columns.
@triton.jit
def transpose(x_ptr: "*fp16:16", out_ptr: "*fp16:16", stride: "i32:16", out_stride: "i32:16", BLOCK: tl.constexpr = 64):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows[:, None] * stride + columns[None, :])
    tl.store(out_ptr + columns[None, :] * out_stride + rows[:, None], x)


# A row's mean under an autotuner, with a constant that follows from the arguments.
@triton.autotune(
    configs=[triton.Config({"ROWS": 1}, num_warps=1), triton.Config({"ROWS": 4, "waves_per_eu": 2}, num_warps=4)],
    key=["columns"],
)
@triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["columns"])})
@triton.jit
def tuned(
    x_ptr: "*bf16:16", out_ptr: "*fp32:16", columns: "i32:16" = 1000, ROWS: tl.constexpr = 1, BLOCK: tl.constexpr = 0
):
    row = tl.program_id(0) * ROWS
    at = tl.arange(0, BLOCK)
    for number in tl.static_range(ROWS):
        x = tl.load(x_ptr + (row + number) * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        tl.store(out_ptr + row + number, tl.sum(x, 0) / columns)
