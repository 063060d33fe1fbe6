"""Which integers name rows of an embedding: those may be any of them, whatever a few calls happen to show."""

from __future__ import annotations

import torch

TELLING = 8  # numbers: fewer may be equal by chance


class Lookups:
    """While it is entered, `found(index, rows)` is told of every embedding that is not compiled."""

    def __init__(self, found):
        self._found = found

    def __enter__(self):
        plain = self._plain = torch.nn.functional.embedding

        def embedding(index, weight, *args, **kwargs):
            if not torch.compiler.is_compiling():
                self._found(index, len(weight))
            return plain(index, weight, *args, **kwargs)

        torch.nn.functional.embedding = embedding
        return self

    def __exit__(self, *error):
        torch.nn.functional.embedding = self._plain
        return False


def named_by(index, integers):
    """The positions of those among tensors of integers that an index is, or has the numbers of."""
    memory, flat = index.untyped_storage().data_ptr(), index.flatten()
    same = [at for at, value in enumerate(integers) if value.untyped_storage().data_ptr() == memory]
    if not same and flat.numel() >= TELLING:  # of another integer type, perhaps
        same = [at for at, value in enumerate(integers) if _are_equal(value.flatten(), flat)]
    return same


def is_integer(tensor):
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _are_equal(one, other):
    return one.shape == other.shape and bool((one == other).all())
