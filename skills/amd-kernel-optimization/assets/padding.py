# Ratchet: padding.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Call a module without the padding that no row needs.

    @without_padding("words", "mask", mask="mask")
    class Model(nn.Module): ...

Cuts off the end of the arguments of `forward` that are named, where the mask, (rows, positions), holds `padding` in
every row. How much that is, is read from the mask, for which the host waits. That is over before the module is called:
what is compiled of its calls, or recorded by a decorator below this one, knows nothing of it. What is left is rounded
up to STEP positions, so that they meet fewer sizes. Compiled code around the module breaks its graph there.

Nothing is cut off where it might be seen or mean something else: where the mask is of another kind than `padding`
(False of a bool, 0 of integers, 0.0 of floats that are not negative) or keeps nothing of a row, where an argument as
wide as the mask is not named or cannot be cut, where one that is no tensor is not what it is by default, of subclasses,
under hooks on calls (of the module, of a part, of all modules at once) and with a `forward` of the module's own. Nor
where the mask cannot be read: in a program that is exported or traced, under modes and transforms, and in a graph that
is captured.
"""

import inspect
import itertools
import operator

import torch

from .class_calls import through
from .eager import is_capturing, is_exporting, is_watched, means_more
from .per_module import PerModule

STEP = 8

_known = PerModule()  # the _Parts of each
_values = operator.methodcaller("values")


def without_padding(*names, mask, padding=0):
    """Class decorator for nn.Module classes. What is no tensor, or not as wide as the mask, stays as it is."""

    def decorate(cls):
        parameters = list(inspect.signature(cls.forward).parameters.values())[1:]
        usual = {each.name: each.default for each in parameters}

        def call(module, plain, args, kwargs):
            if not ("forward" in vars(module) or is_exporting()):
                args, kwargs = _shortened(module, usual, args, kwargs, names, mask, padding)
            return plain(*args, **kwargs)

        return through(call)(cls)

    return decorate


@torch.compiler.disable
def _shortened(module, usual, args, kwargs, names, mask, padding):
    given = {**dict(zip(usual, args, strict=False)), **kwargs}
    length = _needed(given, usual, names, mask, padding) if not _is_seen(module) else None
    if length is None:
        return args, kwargs
    short = {name: _cut(given[name], length) for name in names if _is_wide(given.get(name), given[mask])}
    found = [short.get(name, value) for name, value in zip(usual, args, strict=False)]
    return (*found, *args[len(found) :]), {name: short.get(name, value) for name, value in kwargs.items()}


def _needed(given, usual, names, mask, padding):
    """How many positions some row needs, rounded up; None where nothing is cut off."""
    by = given.get(mask)
    if not isinstance(by, torch.Tensor) or _cannot_be_read(by) or by.dim() != 2 or by.numel() == 0:
        return None
    if _kind(by) is not type(padding) or not all(_may_be_there(n, v, by, usual, names) for n, v in given.items()):
        return None
    kept = by != padding
    behind = kept.any(0).flip(0).to(torch.uint8).argmax()
    sound = kept.any(1).all()
    if by.is_floating_point() and padding == 0:
        sound = sound & (by >= 0).all()  # not what is added to scores
    length = -(-(by.shape[1] - int(behind * sound)) // STEP) * STEP
    return length if length < by.shape[1] else None


def _kind(mask):
    if mask.dtype is torch.bool:
        return bool
    return float if mask.is_floating_point() else int


def _may_be_there(name, value, mask, usual, names):
    """Whether an argument can be cut, or has nothing to do with how wide the mask is."""
    if not isinstance(value, torch.Tensor):
        return value is None or value is usual.get(name, inspect.Parameter.empty)
    return mask.shape[1] not in value.shape or (name in names and _is_wide(value, mask))


def _is_wide(value, mask):
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.shape[1] != mask.shape[1]:
        return False
    return value.shape[0] == mask.shape[0] or 1 in (value.shape[0], mask.shape[0])


def _cannot_be_read(mask):
    return means_more() or mask.is_meta or (mask.is_cuda and is_capturing())


def _is_seen(module):
    """Whether a hook on it, or on a part of it, would see what it is called with."""
    parts = _known.get(module)
    if parts is None or not parts.are_the_same():
        parts = _known[module] = _Parts(module)
    return is_watched() or any(parts.hooks)


class _Parts:
    """Those of a module, and where the hooks of each would be."""

    def __init__(self, module):
        parts = list(module.modules())
        self.hooks = [held for part in parts for held in (part._forward_hooks, part._forward_pre_hooks)]
        self.places = [part._modules for part in parts]
        self.known = self._now()

    def are_the_same(self):
        """Asked in each call, of hundreds of parts: without a line of Python for each."""
        now = self._now()
        return len(now) == len(self.known) and all(map(operator.is_, now, self.known))

    def _now(self):
        return list(itertools.chain.from_iterable(map(_values, self.places)))


def _cut(tensor, length):
    tensor = tensor[:, :length].contiguous()
    torch._dynamo.maybe_mark_dynamic(tensor, 1)  # or what is compiled would be compiled again at the next length
    return tensor
