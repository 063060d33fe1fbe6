# Ratchet: undone.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Calls on trial: what they write to the buffers of a module is undone, and told."""

import contextlib

import torch

from .kept import version


@contextlib.contextmanager
def undone(buffers, written):
    """What makes these tensors hold again what they hold now, also what torch has not counted; it is called at the end
    in any case. Those that were written to are added to `written`.
    """
    before, versions = [tensor.clone() for tensor in buffers], list(map(version, buffers))

    def undo():
        for place, (tensor, held) in enumerate(zip(buffers, before, strict=True)):
            if version(tensor) != versions[place] or not torch.equal(tensor, held):
                tensor.copy_(held)
                versions[place] = version(tensor)
                written.extend(() if is_in(tensor, written) else (tensor,))

    try:
        yield undo
    finally:
        undo()


def is_in(tensor, tensors):
    return any(tensor is each for each in tensors)


def are_in_one_memory(leaves, others):
    """Whether a tensor among the leaves lies in the memory of one of the others."""
    return not _memory(leaves).isdisjoint(_memory(others))


def _memory(leaves):
    return {leaf.untyped_storage().data_ptr() for leaf in leaves if isinstance(leaf, torch.Tensor)}
