# Ratchet: constants.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Tensors and whole numbers that depend on shapes, dtypes, devices and numbers alone, built once and kept.

`constant(build, *arguments)` is `build(*arguments)`, remembered. Nothing is remembered while other code looks at or
changes what operations mean (autocast, fake tensors, function transforms, graph capture), for arguments that are no
plain values, and for a result that was changed in place, which is noticed in eager calls only: compiled code reads what
is kept as it is. Code that is compiled for any size builds inline, as does what is compiled for one size after another
once MAX_KEYS results are kept for a `build`. A result on a GPU is waited for when it is built, so that any stream may
read it.
"""

import itertools

import torch
from torch.fx.experimental.symbolic_shapes import has_static_value

from .eager import default_devices, is_capturing, is_exporting, is_plain
from .kept import PLAIN, Same, exactly
from .streams import wait_for

MAX_KEYS = 4  # well below torch.compile's limit of 8 recompilations of one function


class _Values:
    """Results as attributes, by slot. Code that is being compiled reads an attribute as it is, but of a dict it knows
    only what was in it when it first looked: a second result would break the graph.
    """


_values = _Values()
_numbers = itertools.count()  # of slots, each given once, whichever threads ask
_known = {}  # build -> {all that its results depend on: (slot, [(tensor, as it was when built)])}
_varying = set()  # each `build` of which no more results are kept; those that are stay in use outside compiled code
_retired = []  # results given up, but perhaps still read by a recorded graph


def constant(build, *arguments):
    """The result of `build(*arguments)`: a tensor or whole number, or a tuple or list of such. Do not change it in
    place.
    """
    if torch.compiler.is_compiling():
        # by a size that is a symbol: code that is compiled for all sizes shall stay one for all
        if is_exporting() or _varies(build) or not all(has_static_value(a) for a in arguments if type(a) is int):
            return build(*arguments)
        slot = _slot(build, *arguments)
    else:
        slot = _find(build, arguments)
    return build(*arguments) if slot is None else getattr(_values, slot)


@torch.compiler.assume_constant_result
def _varies(build):
    """As it is when code is compiled: what was compiled before, for a result that is kept, stays as it is."""
    return build in _varying


@torch.compiler.assume_constant_result
def _slot(build, *arguments):
    return _find(build, arguments)


def _find(build, arguments):
    if not all(isinstance(a, PLAIN) for a in arguments) or not is_plain():
        return None
    known = _known.setdefault(build, {})
    key = (*map(exactly, arguments), torch.get_default_dtype(), *default_devices())
    if key not in known:
        return _keep(known, key, build, arguments)
    slot, tensors = known[key]
    if all(same.is_unwritten(tensor) for tensor, same in tensors):
        return slot
    _varying.add(build)  # from now on every caller gets its own
    _retired.extend(_values.__dict__.pop(slot) for slot, _ in known.values())
    known.clear()
    return None


def _keep(known, key, build, arguments):
    if len(known) >= MAX_KEYS:
        _varying.add(build)
    if build in _varying or is_capturing():
        return None
    # a tensor born in inference mode could never be used for training later
    with torch.inference_mode(False), torch.no_grad():
        value = build(*arguments)
    parts = value if isinstance(value, (tuple, list)) else (value,)
    if not all(type(part) in (torch.Tensor, int) for part in parts):
        _varying.add(build)
        return None
    tensors = [part for part in parts if type(part) is torch.Tensor]
    wait_for(tensors)
    slot = f"slot{next(_numbers)}"
    setattr(_values, slot, value)
    known[key] = slot, [(tensor, Same(tensor)) for tensor in tensors]
    return slot
