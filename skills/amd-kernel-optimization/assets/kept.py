# Ratchet: kept.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What results that are kept for later calls depend on, and how it is noticed that they may be kept no longer.

Plain values never change and are compared by value (`exactly`), tensors that are given bit by bit (`equal`). A tensor
of our own is the same while it is the same object and torch counts no write to it (`Same`). That is no use for a tensor
of others: NumPy, another library and `.data` write uncounted.
"""

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
