# Ratchet: padding.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Call a module without the padding that no row needs.

    @without_padding("words", "mask", mask="mask")
    class Model(nn.Module): ...

Cuts off the end of the arguments of `forward` that are named, where the mask, (rows, positions), holds `padding` in
every row. How much that is, is read from the mask, for which the host waits. That is over before the module is called:
what is compiled of its calls, or recorded by a decorator below this one, knows nothing of it. What is left is rounded
up to STEP positions, so that they meet fewer sizes.

Nothing is cut off where the mask cannot be read (a program that is exported or traced, a graph that is captured, a mask
that is none or of another form), of subclasses, and where a hook or a `forward` of the module's own might see it.
"""

import functools
import inspect

import torch

from .exporting import is_exporting

STEP = 8


def without_padding(*names, mask, padding=0):
    """Class decorator for nn.Module classes. What is no tensor, or not as wide as the mask, stays as it is."""

    def decorate(cls):
        own = vars(cls).get("__call__")
        order = list(inspect.signature(cls.forward).parameters)[1:]

        @functools.wraps(cls.__call__)
        def call(self, *args, **kwargs):
            if type(self) is cls and _applies(self):
                args, kwargs = _shortened(order, args, kwargs, names, mask, padding)
            return super(cls, self).__call__(*args, **kwargs) if own is None else own(self, *args, **kwargs)

        cls.__call__ = call
        return cls

    return decorate


def _applies(module):
    watched = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return not (watched or is_exporting() or torch.jit.is_tracing())


@torch.compiler.disable
def _shortened(order, args, kwargs, names, mask, padding):
    given = {**dict(zip(order, args, strict=False)), **kwargs}
    form, length = _needed(given.get(mask), padding)
    short = {name: _cut(given[name], length) for name in names if _has_form(given.get(name), form)}
    found = [short.get(name, value) for name, value in zip(order, args, strict=False)]
    return (*found, *args[len(found) :]), {name: short.get(name, value) for name, value in kwargs.items()}


def _needed(mask, padding):
    """The mask's shape and how many positions some row needs, rounded up; (None, None) where nothing is cut off."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or mask.numel() == 0 or _cannot_be_read(mask):
        return None, None
    width = mask.shape[1]
    behind = int((mask != padding).any(0).flip(0).to(torch.uint8).argmax())  # 0 also where everything is padding
    length = -(-(width - behind) // STEP) * STEP
    return (mask.shape, length) if length < width else (None, None)


def _cannot_be_read(mask):
    return mask.is_meta or (mask.is_cuda and torch.cuda.is_current_stream_capturing())


def _has_form(value, form):
    if form is None or not isinstance(value, torch.Tensor) or value.dim() < 2:
        return False
    return value.shape[1] == form[1] and value.shape[0] in (1, form[0])


def _cut(tensor, length):
    tensor = tensor[:, :length].contiguous()
    torch._dynamo.maybe_mark_dynamic(tensor, 1)  # or what is compiled would be compiled again at the next length
    return tensor
