# Ratchet: fastest.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Which of several ways to the same result is the fastest on this device, by measuring once.

What fails, or gives other results than the plain way, or the same in another order in memory, is no way. Another than
the plain one is taken only where it is 5 % faster.
"""

import warnings

import torch

WARM_UP, RUNS = 3, 10
WORTH = 0.95  # of the time of the plain way
AGREES = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}  # of the largest result
DEVICES = ("cuda",)  # what PyTorch calls AMD's GPUs as well
MOST = 64  # shapes that are measured: where each call brings a new one, measuring would never pay
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def applies(x):
    """Whether ways may be chosen between for a call with this tensor."""
    if torch.is_grad_enabled() or x.device.type not in DEVICES or x.dtype not in AGREES:
        return False
    if not torch.compiler.is_compiling() and (x.is_nested or _means_more()):
        return False
    return type(x) in _PLAIN and not torch.is_autocast_enabled(x.device.type)


def _means_more():
    """Whether operations are recorded or counted, or mean something else, at the moment."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def may_measure(chosen, x):
    """Whether one more shape may be: `chosen` holds those that are known."""
    return len(chosen) < MOST and x.numel() > 0 and not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def fastest(plain, others, *given):
    """One of these functions of `given`, which each gives one tensor."""
    wanted = plain(*given)
    found, least_s = plain, WORTH * seconds(plain, *given)
    for way in others:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a way that is none may say so at length
                spent_s = seconds(way, *given) if agree(way(*given), wanted) else least_s
        except Exception:  # noqa: BLE001 - it does not take this shape or type, or cannot be built on this machine
            continue
        if spent_s < least_s:
            found, least_s = way, spent_s
    return found


def agree(result, wanted):
    if result.shape != wanted.shape or result.dtype != wanted.dtype or result.stride() != wanted.stride():
        return False
    apart = (result.float() - wanted.float()).abs().max()
    return bool(apart <= AGREES[wanted.dtype] * wanted.float().abs().max())  # NaN agrees with nothing


def seconds(way, *given):
    for _ in range(WARM_UP):
        way(*given)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.device(given[0].device):
        begun.record()
        for _ in range(RUNS):
            way(*given)
        ended.record()
        ended.synchronize()
    return begun.elapsed_time(ended) / 1e3 / RUNS
