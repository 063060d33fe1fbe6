# Ratchet: activated_linear.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""A linear layer with a bias and the activation after it as one matrix product, where that is measured to be faster.

    y = act(x W^T + b)    with act one of ReLU and GELU's approximation by tanh

hipBLASLt and cuBLASLt add the bias and apply the activation to what they still hold in registers. For others, GELU by
the error function among them, they have no such epilogue. Each shape is measured once on the device; what is taken,
and when, fastest.py says.

The layer and the activation run one after the other with gradients or autocast, on a CPU, with hooks, for a layer
that is more than a plain nn.Linear with a bias, for an activation that is not exactly nn.ReLU or nn.GELU by tanh, for a
shape that is first seen while a graph is captured, and for all shapes after the first 64.
"""

import functools

import torch
from torch import nn
from torch.nn import functional as F

from . import fastest

_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has its own operator
_ACTIVATIONS = {"relu": F.relu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh")}
_chosen = {}  # shape -> way


def activated_linear(layer, x, activation):
    """`activation(layer(x))`. x: (..., in_features); the result is (..., out_features).

    activation: a module, looked at in each call, or "relu" or "gelu_tanh" for the function.
    """
    kind = activation if isinstance(activation, str) else _computed_by(activation)
    if kind is None or not _applies(layer, x):
        given = layer(x)
        return _ACTIVATIONS[activation](given) if isinstance(activation, str) else activation(given)
    run = _opaque if torch.compiler.is_compiling() else _run
    return run(x, layer.weight, layer.bias, kind)


def _computed_by(module):
    """None for what is not exactly one of PyTorch's own modules for it."""
    if not _is_plain(module):
        return None
    if type(module) is nn.ReLU:
        return "relu"
    return "gelu_tanh" if type(module) is nn.GELU and module.approximate == "tanh" else None


def _applies(layer, x):
    if type(layer) is not nn.Linear or not _is_plain(layer) or not fastest.applies(x) or x.dim() < 2:
        return False
    return all(
        type(p) is nn.Parameter and p.dtype == x.dtype and p.device == x.device for p in (layer.weight, layer.bias)
    )


def _is_plain(module):
    """Without hooks, and without its own `forward`, which adapters and offloading give to single modules."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def _run(x, weight, bias, activation):
    shape = (activation, x.numel() // max(1, x.shape[-1]), weight.shape, x.dtype, x.device)
    return fastest.run(_chosen, shape, _in_turn, lambda *_: (_epilogue,), x, weight, bias, activation)


@torch.library.custom_op(f"{_NAMESPACE}::activated_linear", mutates_args=())
def _opaque(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, activation: str) -> torch.Tensor:
    return _run(x, weight, bias, activation)


@_opaque.register_fake
def _(x, weight, bias, activation):
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _in_turn(x, weight, bias, activation):
    return _ACTIVATIONS[activation](F.linear(x, weight, bias))


def _epilogue(x, weight, bias, activation):
    rows = x.reshape(-1, x.shape[-1])
    result = torch._addmm_activation(bias, rows, weight.t(), use_gelu=activation == "gelu_tanh")
    return result.view(*x.shape[:-1], weight.shape[0])
