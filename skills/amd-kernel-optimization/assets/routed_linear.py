# Ratchet: routed_linear.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Multiply each shape of a linear layer in the way that is the fastest on this device, by measuring once.

`route_linears(module)`, at the end of its `__init__`, does so for every plain nn.Linear below it. The ways are
PyTorch's own product, the same with the bias added afterwards, and, where AMD's aiter is installed, its tuned product
of 16-bit types, with the weights as they are or shuffled for it. What fails or gives other results than PyTorch's own
is no way, and another is taken only where it is 5 % faster. A shape is what counts: rows, features, type and bias.

PyTorch's own is taken with gradients, on a CPU, and for a shape that is first seen while a graph is captured.
Shuffled weights are a second copy, made anew when the layer's own have changed (through `.data` nobody sees it).
"""

import functools
import inspect

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

WARM_UP, RUNS = 3, 10
WORTH = 0.95  # of the time of PyTorch's own
AGREES = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}  # of the largest result
DEVICES = ("cuda",)  # what PyTorch calls AMD's GPUs as well

_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has an operator of its own
_chosen = {}  # shape -> way
_shuffled = WeakTensorKeyDictionary()  # weight -> (its version and address, the shuffled copy)


def route_linears(module):
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = RoutedLinear


class RoutedLinear(nn.Linear):
    def forward(self, x):
        if torch.is_grad_enabled() or x.device.type not in DEVICES or x.dtype not in AGREES:
            return F.linear(x, self.weight, self.bias)
        run = _opaque if torch.compiler.is_compiling() else _linear
        return run(x, self.weight, self.bias)


def _linear(x, weight, bias):
    shape = (x.numel() // max(1, x.shape[-1]), weight.shape, x.dtype, bias is None, x.device)
    way = _chosen.get(shape)
    if way is None:
        if x.numel() == 0 or (x.is_cuda and torch.cuda.is_current_stream_capturing()):
            return F.linear(x, weight, bias)
        way = _chosen[shape] = _fastest(x, weight, bias)
    return way(x, weight, bias)


@torch.library.custom_op(f"{_NAMESPACE}::linear", mutates_args=())
def _opaque(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return _linear(x, weight, bias)


@_opaque.register_fake
def _(x, weight, bias):
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _fastest(x, weight, bias):
    wanted = F.linear(x, weight, bias)
    found, least_s = F.linear, WORTH * _seconds(F.linear, x, weight, bias)
    for way in _ways(bias):
        try:
            agrees = _agrees(way(x, weight, bias), wanted)
            spent_s = _seconds(way, x, weight, bias) if agrees else least_s
        except (RuntimeError, AssertionError, TypeError, ValueError, KeyError):  # it does not take this shape or type
            continue
        if spent_s < least_s:
            found, least_s = way, spent_s
    return found


def _ways(bias):
    ways = [] if bias is None else [_bias_apart]
    return ways + ([_by_aiter, _by_aiter_shuffled] if _aiter() is not None else [])


def _agrees(result, wanted):
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return False
    apart = (result.float() - wanted.float()).abs().max()
    return bool(apart <= AGREES[wanted.dtype] * wanted.float().abs().max())  # NaN agrees with nothing


def _seconds(way, x, weight, bias):
    for _ in range(WARM_UP):
        way(x, weight, bias)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for _ in range(RUNS):
        way(x, weight, bias)
    ended.record()
    ended.synchronize()
    return begun.elapsed_time(ended) / 1e3 / RUNS


def _bias_apart(x, weight, bias):
    return F.linear(x, weight).add_(bias)


def _by_aiter(x, weight, bias):
    return _aiter()[0](x, weight, bias=bias)


def _by_aiter_shuffled(x, weight, bias):
    return _aiter()[0](x, _shuffled_copy(weight), bias=bias)


def _shuffled_copy(weight):
    """aiter knows a shuffled weight by an attribute alone; without it, it would multiply with the wrong numbers."""
    state = (None if weight.is_inference() else weight._version, weight.data_ptr())
    known = _shuffled.get(weight)
    if known is None or known[0] != state or not getattr(known[1], "is_shuffled", False):
        copy = _aiter()[1](weight.detach())
        if not getattr(copy, "is_shuffled", False):
            raise RuntimeError("aiter did not mark the weight as shuffled")
        known = _shuffled[weight] = (state, copy)
    return known[1]


@functools.cache
def _aiter():
    """(its product, its shuffle), None where it is not installed or takes other arguments than it is known to take."""
    try:
        from aiter.ops.shuffle import shuffle_weight
        from aiter.tuned_gemm import gemm_a16w16
    except (ImportError, OSError, RuntimeError, AttributeError):  # not there, or not for this machine
        return None
    try:
        takes = list(inspect.signature(gemm_a16w16).parameters)
    except ValueError:
        return None
    return (gemm_a16w16, shuffle_weight) if takes[:2] == ["A", "B"] and "bias" in takes else None
