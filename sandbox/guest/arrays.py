"""What of NumPy is compared by value: its numbers, and arrays of numbers or texts. It is never imported here."""

from __future__ import annotations

import sys

import torch

_NUMBERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
_NAMES = frozenset(_NUMBERS.split())


def is_number(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and value.dtype.name in _NAMES


def is_array(value):
    """Of numbers, that torch takes as they are."""
    return _is_array(value) and value.dtype.name in _NAMES and value.dtype.isnative


def is_of_texts(value):
    return _is_array(value) and value.dtype.kind in "US"


def _is_array(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def number(name, value):
    """Raises: ValueError."""
    if name not in _NAMES:
        raise ValueError(f"numpy has no number of type {name!r}")
    return torch.tensor(value, dtype=getattr(torch, name)).numpy()[()]


def of_texts(dtype, texts):
    return sys.modules["numpy"].array(texts, dtype=dtype)
