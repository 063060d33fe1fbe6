"""Attention of one block of queries over all keys, with the running maximum and sum of its softmax."""

# ruff: noqa: F722, F821
import triton
import triton.language as tl


@triton.jit
def attention(
    q_ptr: "*fp16:16",
    k_ptr: "*fp16:16",
    v_ptr: "*fp16:16",
    out_ptr: "*fp16:16",
    length: "i32:16",
    scale: "fp32",
    M: tl.constexpr = 64,
    N: tl.constexpr = 32,
    D: tl.constexpr = 64,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    keys, width = tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + width[None, :])
    highest = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    out = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        k = tl.load(k_ptr + (start + keys)[None, :] * D + width[:, None])
        scores = tl.dot(q, k) * scale
        higher = tl.maximum(highest, tl.max(scores, 1))
        powers = tl.exp(scores - higher[:, None])
        shrink = tl.exp(highest - higher)
        v = tl.load(v_ptr + (start + keys)[:, None] * D + width[None, :])
        out = tl.dot(powers.to(tl.float16), v, out * shrink[:, None])
        total = total * shrink + tl.sum(powers, 1)
        highest = higher
    tl.store(out_ptr + rows[:, None] * D + width[None, :], (out / total[:, None]).to(tl.float16))
