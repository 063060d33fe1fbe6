# Ratchet: fastest.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Which of several ways to the same result is the fastest on this device, measured once for each shape.

A way that fails, or gives other results than the plain one or another order in memory, is not used. Another way than
the plain one is taken only where it is 5 % faster. The plain one is also taken for a shape that is first seen while a
graph is captured, and for all shapes after the first MOST.
"""

import functools
import importlib
import inspect
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


def run(chosen, shape, plain, others, *given):
    """The result of the fastest way for this shape. Each way is a function of `given` that returns one tensor.

    chosen: the ways that are known, by shape. others: function of `given` that lists the ways beside the plain one.
    """
    way, x = chosen.get(shape), given[0]
    if way is None:
        if len(chosen) >= MOST or x.numel() == 0 or (x.is_cuda and is_capturing()):
            return plain(*given)
        way = chosen[shape] = _fastest(plain, others(*given), *given)
    return way(*given)


@functools.cache
def installed(module, name, first=(), named=()):
    """A function of a library; None where it is not installed or takes other arguments than it is known to take."""
    try:
        found = getattr(importlib.import_module(module), name)
        takes = list(inspect.signature(found).parameters)
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError):  # not there, or not for this machine
        return None
    return found if takes[: len(first)] == [*first] and {*named} <= {*takes} else None


def _fastest(plain, others, *given):
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
