# Ratchet: routed_linear.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Linear layers by the product that was measured to be the fastest for each shape on this device.

`route_linears(module)`, at the end of its `__init__`, does so for every plain nn.Linear below it. The ways are
PyTorch's own product, the same with the bias added afterwards, and, where AMD's aiter is installed, its tuned product
of 16-bit types. Weights are not shuffled for it: to see that the layer's own still are those of such a copy takes as
long as a product. A shape is what counts: rows, features, type and bias. fastest.py decides which is taken, and when.

The layers become ones of a subclass: see plain_linears.py.
"""

import torch
from torch import nn
from torch.nn import functional as F

from . import fastest
from .plain_linears import plain_linears

_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has its own operator
_chosen = {}  # shape -> way


def route_linears(module):
    for layer in plain_linears(module):
        layer.__class__ = RoutedLinear


class RoutedLinear(nn.Linear):
    def forward(self, x):
        if not fastest.applies(x):
            return F.linear(x, self.weight, self.bias)
        run = _opaque if torch.compiler.is_compiling() else _linear
        return run(x, self.weight, self.bias)


def _linear(x, weight, bias):
    shape = (x.numel() // max(1, x.shape[-1]), weight.shape, x.dtype, bias is None, x.device)
    return fastest.run(_chosen, shape, F.linear, _ways, x, weight, bias)


@torch.library.custom_op(f"{_NAMESPACE}::linear", mutates_args=())
def _opaque(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return _linear(x, weight, bias)


@_opaque.register_fake
def _(x, weight, bias):
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _ways(x, weight, bias):
    ways = [] if bias is None else [_bias_apart]
    return ways + ([_by_aiter] if _aiter() is not None else [])


def _bias_apart(x, weight, bias):
    return F.linear(x, weight).add_(bias)


def _by_aiter(x, weight, bias):
    return _aiter()(x, weight, bias=bias)


def _aiter():
    """Its product, or None."""
    return fastest.installed("aiter.tuned_gemm", "gemm_a16w16", ("A", "B"), ("bias",))
