# Ratchet: softmax_topk.py. Copied into this repository by an accepted change; it needs torch, and triton where used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The router of a mixture of experts, softmax and then top-k, as one Triton kernel, for inference.

    p = softmax(logits)                          in float32
    weights, ids = the k largest of a row of p, descending; of equals the lower id first
    weights = weights / sum(weights)             renormalize

A row whose softmax is NaN (it holds a NaN or +inf, or nothing but -inf) has NaN for weights, and the ids 0 to k - 1, so
that ids are always those of experts. `softmax_topk` answers None where the kernel does not apply, and the caller's own
code runs: off the GPU, where a gradient is needed, for a softmax in another dtype than float32, for logits in float64,
for rows that are not contiguous, for more than MOST_EXPERTS, and for a k below 1, above MOST_CHOSEN or above the number
of experts. Outside of compiled code also on a GPU that is not the current one, on which Triton launches, for subclasses
of tensors, and under tracing, dispatch modes, function transforms and forward-mode AD, none of which sees a launch.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # then softmax_topk always answers None
    triton = None

MOST_EXPERTS = 1024  # a row, which one wavefront holds
MOST_CHOSEN = 32  # each takes a pass over the row
CHOICES = tuple({"num_warps": n} for n in (1, 2, 4, 8))  # what a tuner may try
TUNED, TUNED_ON = {}, ""  # (rows, columns) -> the fastest of them, by measuring on the device of that name
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def softmax_topk(logits, k, renormalize=False, dtype=None):
    """logits: (..., experts). Returns float32 weights and int64 ids, both (..., k), or None (see above).

    dtype: that of the softmax, as in torch.softmax: the one that the logits have, unless it is given.
    """
    if triton is None or not logits.is_cuda or not _may_launch(logits):
        return None
    if (logits.dtype if dtype is None else dtype) != torch.float32 or logits.dtype not in _DTYPES or logits.dim() == 0:
        return None
    if logits.stride(-1) != 1 or logits.shape[-1] > MOST_EXPERTS or not 1 <= k <= min(logits.shape[-1], MOST_CHOSEN):
        return None
    if torch.is_grad_enabled() and logits.requires_grad:
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
        **_launch(kernel, rows.shape[0], experts, {"num_warps": 1}),
    )
    return weights, ids


def _may_launch(x):
    """Whether operations mean and record nothing else, on the current device. Compiled code sees to that by itself."""
    if torch.compiler.is_compiling():
        return True
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.get_device() != torch.cuda.current_device():
        return False
    return not (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def _launch(kernel, rows, columns, rule):
    """The options of a launch: what was measured for these columns and the next larger number of rows, else the rule.

    Code that torch.compile makes takes only the options that the rule has.
    """
    seen = sorted(r for r, c in TUNED if c == columns)
    if not seen or not seen[0] <= rows <= seen[-1] or torch.cuda.get_device_name() != TUNED_ON:
        return rule
    tuned, direct = TUNED[next(r for r in seen if rows <= r), columns], isinstance(kernel, triton.JITFunction)
    return {**rule, **{name: value for name, value in tuned.items() if direct or name in rule}}
