# Ratchet: fastest.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Which of several ways to the same result is the fastest on this device, by measuring once.

What fails, or gives other results than the plain way, or the same in another order in memory, is no way. Another than
the plain one is taken only where it is 5 % faster.
"""

import warnings

import torch

from .agreement import agree
from .eager import is_capturing, means_more

WARM_UP, RUNS = 3, 10
WORTH = 0.95  # of the time of the plain way
DEVICES = ("cuda",)  # what PyTorch calls AMD's GPUs as well
MOST = 64  # shapes that are measured: where each call brings a new one, measuring would never pay
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def applies(x):
    """Whether ways may be chosen between for a call with this tensor."""
    if torch.is_grad_enabled() or x.device.type not in DEVICES or x.dtype not in _DTYPES:
        return False
    if not torch.compiler.is_compiling() and (x.is_nested or means_more()):
        return False
    return type(x) in _PLAIN and not torch.is_autocast_enabled(x.device.type)


def may_measure(chosen, x):
    """Whether one more shape may be: `chosen` holds those that are known."""
    return len(chosen) < MOST and x.numel() > 0 and not (x.is_cuda and is_capturing())


def fastest(plain, others, *given):
    """One of these functions of `given`, which each gives one tensor."""
    wanted = plain(*given)
    found, least_s = plain, WORTH * seconds(plain, *given)
    for way in others:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a way that is none may say so at length
                spent_s = seconds(way, *given) if _is_the_same(way(*given), wanted) else least_s
        except Exception:  # noqa: BLE001 - it does not take this shape or type, or cannot be built on this machine
            continue
        if spent_s < least_s:
            found, least_s = way, spent_s
    return found


def _is_the_same(result, wanted):
    return result.stride() == wanted.stride() and agree(result, wanted)


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
