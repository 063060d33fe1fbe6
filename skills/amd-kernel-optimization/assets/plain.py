# Ratchet: plain.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Plain values, which never change and are compared by value, and how changes of tensors are counted."""

import torch

PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def exactly(value):
    """What is equal for the same plain value only: 0.0 is not -0.0, 1 is not True, and NaN is NaN."""
    kind = type(value)
    return kind, repr(value) if kind in (float, complex) else value


def version(value):
    """How often torch has seen a tensor change; None where that is not counted (inference tensors, other values)."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None
