# Ratchet: arguments.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The arguments of a call, taken apart into tensors and plain values, and put together again."""

import operator

import torch
from torch.utils import _pytree as pytree

from .kept import PLAIN

_LEAVES = frozenset((torch.Tensor, *PLAIN))


def take_apart(args, kwargs):
    """(leaves, structure). Where nothing contains others there is nothing to walk: that takes as long as a copy."""
    leaves = (*args, *kwargs.values())
    for leaf in leaves:
        if type(leaf) not in _LEAVES:
            return pytree.tree_flatten((args, kwargs))
    return leaves, (len(args), *kwargs)


def put_together(leaves, structure):
    """(args, kwargs) of the leaves."""
    if type(structure) is not tuple:
        return pytree.tree_unflatten(leaves, structure)
    number, *names = structure
    return leaves[:number], dict(zip(names, leaves[number:], strict=True))


def still_hold(args, kwargs, leaves, structure):
    """Whether containers still hold what was in them: a replay would write into none."""
    if type(structure) is tuple:
        return True
    now, form = pytree.tree_flatten((args, kwargs))
    return form == structure and all(map(operator.is_, now, leaves))
