# Ratchet: from_shapes.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What shapes and settings alone decide, such as whether a mask is needed, found out once and kept.

`from_shapes(build, *arguments)` is `build(*arguments)`, kept under a key of what it depends on: plain arguments by
value, settings (objects of plain attributes, or containers of such, and nothing else) by all of these, and tensors by
shape, strides, dtype and device alone, beside torch's own defaults and whether gradients are recorded. That it depends
on nothing else of tensors is seen, not believed: at first `build` gets stand-ins in their place, which have no data.
Where it asks for any, draws random numbers, changes the settings or gives back what is neither plain nor a tensor, it
runs in every call, as it would without this. So it does while other code looks at or changes what operations mean, and
after somebody wrote to what he was given. What `build` does beside computing its result is done once; what it reads of
other modules is taken to stay.

Inside torch.compile it is not traced: the graph ends before it, and another begins.
"""

import contextlib
import copy
import weakref

import torch
from torch.utils import _pytree

from .constants import _default_device, _is_observed
from .exporting import is_exporting

MOST = 16  # results kept of one `build`

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_NOTHING = object()  # no plain result: nothing that is ever kept
_kept = {}  # build -> {key: _Kept, or None where it runs in every call}
_retired = []  # given up, but perhaps still read by a recorded graph


def from_shapes(build, *arguments):
    """The result of `build(*arguments)`. Do not change it in place."""
    if is_exporting() or torch.jit.is_scripting() or torch.jit.is_tracing():
        return build(*arguments)
    return _from_shapes(build, arguments)


@torch.compiler.disable
def _from_shapes(build, arguments):
    if _is_observed() or not all(map(_can_be_told, arguments)):
        return build(*arguments)
    known = _kept.setdefault(build, {})
    key = (torch.get_default_dtype(), _default_device(), torch.is_grad_enabled(), *map(_facts, arguments))
    found = known.get(key)
    if found is not None and found.is_of(arguments):
        if found.is_intact():
            return found.result()
        _retired.append(found)
        known[key] = None  # somebody writes to what he is given
    elif (found is not None or (key not in known and len(known) < MOST)) and not _is_capturing():
        _retired.extend([found] if found is not None else [])  # of other settings
        known[key] = found = _found_out(build, arguments)
        if found is not None:
            return found.result()
    return build(*arguments)


class _Kept:
    """A result, and the settings it was found with."""

    def __init__(self, arguments, settings, value):
        self.settings = [(weakref.ref(a), s) for a, s in zip(arguments, settings, strict=True) if s is not None]
        self.outs, self.form = _pytree.tree_flatten(value)
        self.versions = [out._version if isinstance(out, torch.Tensor) else None for out in self.outs]

    def is_of(self, arguments):
        given = [a for a in arguments if _is_settings(a)]
        pairs = zip(self.settings, given, strict=True)
        return all(reference() is now and _unchanged(now, then) for (reference, then), now in pairs)

    def is_intact(self):
        return all(v is None or out._version == v for out, v in zip(self.outs, self.versions, strict=True))

    def result(self):
        """In containers of its own."""
        return _pytree.tree_unflatten(self.outs, self.form)


def _found_out(build, arguments):
    """What `build` gives by facts alone; None where it needs more."""
    settings = [_snapshot(a) if _is_settings(a) else None for a in arguments]
    asked = []
    given = [_StandIn(a, asked) if isinstance(a, torch.Tensor) else a for a in arguments]
    value, before = _NOTHING, _random_state()
    mode = torch.set_grad_enabled(torch.is_grad_enabled())  # which leaving inference mode would change
    # What is wrong with the call itself, the call itself tells. What is born in inference mode could never be used for
    # training, and changes of it are not counted.
    with contextlib.suppress(_NoData, Exception), torch.inference_mode(False), mode:
        value = build(*given)
    drawn = not all(map(torch.equal, before, _random_state()))
    for device, state in zip(_random_devices(), before, strict=True):
        torch.set_rng_state(state) if device is None else torch.cuda.set_rng_state(state, device)
    leaves = _pytree.tree_leaves(value)
    plain = all(isinstance(leaf, _PLAIN) or (type(leaf) is torch.Tensor and leaf.is_leaf) for leaf in leaves)
    changed = any(s is not None and not _unchanged(a, s) for a, s in zip(arguments, settings, strict=True))
    return None if asked or drawn or changed or not plain else _Kept(arguments, settings, value)


class _NoData(BaseException):  # not to be caught as an error of the code that asks
    """A stand-in was asked for data."""


_GETTERS = ("shape", "dtype", "device", "layout", "ndim", "is_cuda", "itemsize", "nbytes", "requires_grad")
_METHODS = ("size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "get_device", "is_contiguous",
            "is_floating_point", "is_complex", "__len__")  # fmt: skip
_FACTS = {*(getattr(torch.Tensor, name).__get__ for name in _GETTERS), *(getattr(torch.Tensor, n) for n in _METHODS)}
_FACTS |= {torch.numel, torch.is_floating_point, torch.is_complex}


class _StandIn(torch.Tensor):
    """Has the facts of a tensor; whatever else is asked of it is noted, and ends the call."""

    @staticmethod
    def __new__(cls, tensor, asked):
        facts = {"strides": tensor.stride(), "dtype": tensor.dtype, "device": tensor.device}
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, **facts)

    def __init__(self, tensor, asked):
        self._asked = asked

    @classmethod
    def __torch_function__(cls, asked, types, args=(), kwargs=None):
        if asked not in _FACTS:
            cls._note(asked, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return asked(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, asked, types, args=(), kwargs=None):
        cls._note(asked, args, kwargs)

    @classmethod
    def _note(cls, asked, args, kwargs):
        for leaf in _pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, _StandIn):
                leaf.__dict__["_asked"].append(str(asked))
        raise _NoData(asked)


def _can_be_told(argument):
    if isinstance(argument, torch.Tensor):
        return type(argument) is torch.Tensor and argument.layout == torch.strided and not argument.requires_grad
    return isinstance(argument, _PLAIN) or _is_settings(argument)


def _facts(argument):
    if isinstance(argument, torch.Tensor):
        return argument.shape, argument.stride(), argument.dtype, argument.device
    return (type(argument), argument if isinstance(argument, _PLAIN) else id(argument))


class _Attributes:
    """Holds nothing but attributes. What holds more, such as a dict or what has slots, takes more memory than this."""


def _is_settings(argument):
    if isinstance(argument, (*_PLAIN, torch.Tensor)) or type(argument).__basicsize__ != _Attributes.__basicsize__:
        return False
    return hasattr(argument, "__weakref__") and _is_of_plain(getattr(argument, "__dict__", None))


def _is_of_plain(value):
    if isinstance(value, dict):
        return all(isinstance(name, _PLAIN) and _is_of_plain(each) for name, each in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_of_plain, value))
    return isinstance(value, _PLAIN)


def _snapshot(settings):
    return copy.deepcopy(vars(settings)), list(map(type, vars(settings).values()))


def _unchanged(settings, then):
    now, (values, types) = vars(settings), then
    return now == values and list(map(type, now.values())) == types


def _is_capturing():
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _random_devices():
    return [None, *(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())]


def _random_state():
    return [torch.get_rng_state() if d is None else torch.cuda.get_rng_state(d) for d in _random_devices()]
