# Ratchet: kept.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What results that are kept for later calls depend on, and how it is noticed that they may be kept no longer.

Plain values never change and are compared by value (`exactly`), tensors that are given bit by bit (`equal`). A tensor
of our own is the same while it is the same object and torch counts no write to it (`Same`). That is no use for a tensor
of others: NumPy, another library and `.data` write uncounted. What a call draws from random number generators is seen
by their states (`Generators`).
"""

import pickle
import random
import sys
import weakref

import torch

PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def exactly(value):
    """What is equal for the same plain value only: 0.0 is not -0.0, 1 is not True, and NaN is NaN."""
    kind = type(value)
    return kind, repr(value) if kind in (float, complex) else value


def version(value):
    """How often torch has seen a tensor change; None where that is not counted (inference tensors, other values)."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def is_shared(tensor):
    """Whether another process may write to it, of which nothing is counted here. On a GPU that cannot be told."""
    return tensor.device.type == "cpu" and tensor.is_shared()


def is_ordinary(value):
    """Whether it is a tensor that is all in its memory, shape and strides, and in no other's."""
    return type(value) is torch.Tensor and value.layout == torch.strided and not value.is_nested


def equal(one, other):
    """Whether two tensors hold the same: 0.0 is not -0.0, and NaN is NaN."""
    with torch._C.DisableTorchFunction():  # for modes that look at the call, this is no part of it
        return torch.equal(_bits(one), _bits(other))


def _bits(tensor):
    return tensor.view(_INTEGERS[tensor.element_size()]) if tensor.is_floating_point() else tensor


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Same:
    """A tensor as it is now, which is not kept alive."""

    def __init__(self, tensor):
        self._tensor, self._version = weakref.ref(tensor), version(tensor)

    def is_still(self, tensor):
        """Whether it is this one, and has not been written to."""
        return self._tensor() is tensor and self.is_unwritten(tensor)

    def is_unwritten(self, tensor):
        return self._version is not None and version(tensor) == self._version


class Generators:
    """The states of all that random numbers are drawn from by default."""

    def __init__(self):
        self._states = {name: get() for name, (get, _) in _generators().items()}

    def have_moved(self):
        """Also where there is one more: nobody knows what was drawn from it."""
        now = Generators()._states
        return now.keys() != self._states.keys() or any(not _is_same(now[n], then) for n, then in self._states.items())

    def put_back(self):
        for name, (_, put) in _generators().items():
            if name in self._states:
                put(self._states[name])


def _generators():
    """How to get and set the state of each, by its name."""
    numpy = sys.modules.get("numpy")
    made = {"random": (random.getstate, random.setstate)}
    if numpy:
        made["numpy"] = numpy.random.get_state, numpy.random.set_state
    own = (torch.default_generator, *torch.cuda.default_generators)  # of devices none before the first is used
    return made | {str(each.device): (each.get_state, each.set_state) for each in own}


def _is_same(now, then):
    if not isinstance(now, torch.Tensor):
        return pickle.dumps(now) == pickle.dumps(then)
    return equal(now, then)
