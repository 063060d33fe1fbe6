# Ratchet: softmax_topk.py. Copied into this repository by an accepted change; it needs torch, and triton where used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The router of a mixture of experts, softmax and then top-k, as one Triton kernel, for inference.

    p = softmax(logits)                          in float32
    weights, ids = the k largest of a row of p, descending; of equals the lower id first
    weights = weights / sum(weights)             renormalize

A row whose softmax is NaN (it holds a NaN or +inf, or nothing but -inf) has NaN for weights, and the ids 0 to k - 1, so
that ids are always those of experts. `softmax_topk` returns None where the kernel does not apply (see launching.py),
for a softmax in another dtype than float32, for rows that are not contiguous, for more than MOST_EXPERTS, and for a k
below 1, above MOST_CHOSEN or above the number of experts; then the caller's own code runs.
"""

import torch

from .launching import Tuned, may_launch, tl, triton

MOST_EXPERTS = 1024  # a row, which one wavefront holds
MOST_CHOSEN = 32  # each takes a pass over the row
CHOICES = tuple({"num_warps": n} for n in (1, 2, 4, 8))  # what a tuner may try
TUNED = Tuned({}, "")  # what a tuner found
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own


def softmax_topk(logits, k, renormalize=False, dtype=None):
    """logits: (..., experts). Returns float32 weights and int64 ids, both (..., k), or None (see above).

    dtype: that of the softmax, as in torch.softmax: the one that the logits have, unless it is given.
    """
    if not may_launch(logits) or (dtype or logits.dtype) != torch.float32:
        return None
    if logits.stride(-1) != 1 or logits.shape[-1] > MOST_EXPERTS or not 1 <= k <= min(logits.shape[-1], MOST_CHOSEN):
        return None
    if torch.compiler.is_compiling():
        return _operator(logits, k, renormalize)
    return _run(logits, k, renormalize, _kernel)


if triton is not None:

    @triton.jit
    def _kernel(
        logits_ptr,
        weights_ptr,
        ids_ptr,
        row_stride,
        experts,
        K: tl.constexpr,
        RENORMALIZE: tl.constexpr,
        SLOTS: tl.constexpr,
        TILE: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)  # rows * stride may pass 2^31
        index, slot = tl.arange(0, TILE), tl.arange(0, SLOTS)
        kept = index < experts
        logits = tl.load(logits_ptr + row * row_stride + index, mask=kept, other=-float("inf")).to(tl.float32)
        powers = tl.where(kept, tl.exp(logits - tl.max(logits, 0)), 0.0)
        total = tl.sum(powers, 0)
        # what is taken, and what is no expert, lies below every power; a sum that is NaN makes all powers equal
        left = tl.where(kept, tl.where(total == total, powers, 0.0), -1.0)
        weights, ids = tl.zeros((SLOTS,), tl.float32), tl.zeros((SLOTS,), tl.int32)
        for chosen in range(K):
            power, expert = tl.max(left, 0, return_indices=True)
            weights = tl.where(slot == chosen, power, weights)
            ids = tl.where(slot == chosen, expert, ids)
            left = tl.where(index == expert, -1.0, left)
        weights /= total
        if RENORMALIZE:
            weights /= tl.sum(weights, 0)
        tl.store(weights_ptr + row * K + slot, weights, mask=slot < K)
        tl.store(ids_ptr + row * K + slot, ids.to(tl.int64), mask=slot < K)

    @torch.library.triton_op(f"{_NAMESPACE}::softmax_topk", mutates_args={})
    def _operator(logits: torch.Tensor, k: int, renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
        return _run(logits, k, renormalize, torch.library.wrap_triton(_kernel))


def _run(logits, k, renormalize, kernel):
    experts = logits.shape[-1]
    weights = torch.empty((*logits.shape[:-1], k), dtype=torch.float32, device=logits.device)
    ids = torch.empty((*logits.shape[:-1], k), dtype=torch.int64, device=logits.device)
    if ids.numel() == 0:
        return weights, ids
    rows = logits.reshape(-1, experts)
    kernel[(rows.shape[0],)](
        rows,
        weights,
        ids,
        rows.stride(0),
        experts,
        K=k,
        RENORMALIZE=bool(renormalize),
        SLOTS=triton.next_power_of_2(k),
        TILE=triton.next_power_of_2(experts),
        **TUNED.options(kernel, rows.shape[0], experts, {"num_warps": 1}),
    )
    return weights, ids
