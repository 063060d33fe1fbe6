# Ratchet: remembered.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What a module gave for the same input before.

`remembered(module, *args, **kwargs)` is `module(*args, **kwargs)`, kept under everything that it depends on: the values
of its tensors, its plain arguments, the weights, buffers and attributes of the module and of those in it (see
watched.py). It remembers nothing while training or where gradients are recorded, in autocast, under function
transforms, dispatch modes and hooks, of a call that draws random numbers or writes to what it is given (a tensor, or a
list or dict with the arguments in it), and for results that are no plain tensors; a result that somebody wrote to is
computed again, and another stream than it was computed on waits for it. Where a call is recorded by `graphed`, what is
remembered of its inputs is an input, too; in other recordings it is recorded. Hooks on all modules at once are not
called where no module is, and code around it that is compiled breaks there. A tensor that is the same object is taken
as unchanged when torch counts no change of it, but for one in memory of NumPy or of several processes, whose values are
compared: what writes to memory behind torch's back (`.data`, a kernel of one's own) is not seen.
"""

import operator
import weakref

import torch
from torch.utils import _pytree

from .eager import is_capturing, is_exporting, is_plain
from .per_module import PerModule
from .plain import PLAIN, exactly
from .recording import current
from .streams import Computed
from .watched import Watched, is_shared

MOST = 4  # results kept of one module, such as those with and without a condition
MISSES = 16  # in a row, after which a module or its inputs are taken to change always

_kept = PerModule()  # the _Results of each


def remembered(module, *args, **kwargs):
    """The result of `module(*args, **kwargs)`. Do not change it in place."""
    if is_exporting() or torch.jit.is_tracing():
        return module(*args, **kwargs)
    return _remembered(module, args, kwargs)


@torch.compiler.disable
def _remembered(module, args, kwargs):
    results = _kept.get(module)
    if results is None:
        results = _kept[module] = _Results()
    recording = current()
    if recording is not None and results.misses <= MISSES:
        kept = recording.result(remembered, module, args, kwargs)
        if kept is not None:
            return kept
    if results.misses > MISSES or is_capturing() or not is_plain():
        return module(*args, **kwargs)
    leaves, form = _pytree.tree_flatten((args, kwargs))
    if not all(map(_can_be_told, leaves)) or not results.can_be_used(module):
        return module(*args, **kwargs)
    entry = results.find(form, leaves)
    if entry is not None:
        return entry.result()
    entry, random = _Entry(form, leaves), _random_states(leaves)
    try:
        with torch.inference_mode(False), torch.no_grad():  # or it could never be told whether the result was changed
            result = module(*args, **kwargs)
    except RuntimeError:  # an inference tensor, say, that the module writes to
        results.give_up()
        return module(*args, **kwargs)
    entry.take(result)
    now, form_now = _pytree.tree_flatten((args, kwargs))
    held = form_now == form and all(map(operator.is_, now, leaves))
    only_computed = held and entry.has_the_same(leaves) and random == _random_states(leaves)
    return entry.result() if results.add(entry, only_computed) else result


class _Results:
    """Of one module as it is now, the last used first."""

    def __init__(self):
        self.entries, self.misses, self.state = [], 0, None

    def can_be_used(self, module):
        if self.state is None or not self.state.is_unchanged():
            self.entries, self.state = [], Watched(module)
        usable = self.state.only_computes and self.state.is_counted
        return usable and not (torch.is_grad_enabled() and self.state.needs_gradient())

    def find(self, form, leaves):
        for index, entry in enumerate(self.entries):
            if entry.form == form and entry.is_for(leaves):
                if entry.is_intact():
                    self.misses = 0
                    self.entries.insert(0, self.entries.pop(index))
                    return entry
                self.give_up()  # somebody writes to what he is given
                return None
        self.misses += 1
        return None

    def add(self, entry, only_computed):
        """Whether it is kept."""
        if not (entry.usable and only_computed and self.misses <= MISSES):
            self.give_up()
            return False
        self.entries = [entry, *self.entries[: MOST - 1]]
        return True

    def give_up(self):
        self.entries, self.state, self.misses = [], None, MISSES + 1


class _Entry:
    """A result, and what it was computed from."""

    def __init__(self, form, leaves):
        self.form = form
        self.given = [_Given(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def take(self, result):
        self.outs, self.out_form = _pytree.tree_flatten(result)
        self.tensors = [out for out in self.outs if isinstance(out, torch.Tensor)]
        self.usable = all(map(_can_be_told, self.outs))
        self.versions = list(map(_version, self.tensors))
        self.computed = Computed([*self.tensors, *[each.values for each in self.given if isinstance(each, _Given)]])

    def is_for(self, leaves):
        self.computed.for_here(self.tensors)
        return all(
            given.is_same(leaf) if isinstance(given, _Given) else exactly(given) == exactly(leaf)
            for given, leaf in zip(self.given, leaves, strict=True)
        )

    def has_the_same(self, leaves):
        """Whether the call that was made of them has written to none."""
        pairs = [(given, leaf) for given, leaf in zip(self.given, leaves, strict=True) if isinstance(given, _Given)]
        return all(given.version == _version(leaf) for given, leaf in pairs)

    def is_intact(self):
        return list(map(_version, self.tensors)) == self.versions

    def result(self):
        """In containers of its own; on a CPU in memory of its own, too, which NumPy may write to uncounted."""
        own = [out.clone() if isinstance(out, torch.Tensor) and out.device.type == "cpu" else out for out in self.outs]
        return _pytree.tree_unflatten(own, self.out_form)


class _Given:
    """A tensor that was given: itself, while it lives, and a copy of its values."""

    def __init__(self, tensor):
        self.tensor, self.version, self.values = weakref.ref(tensor), _version(tensor), tensor.detach().clone()

    def is_same(self, leaf):
        if not isinstance(leaf, torch.Tensor):
            return False
        counted = self.version is not None and _version(leaf) == self.version
        if self.tensor() is leaf and counted and not _is_written_uncounted(leaf):
            return True
        values = self.values
        alike = values.shape == leaf.shape and values.dtype == leaf.dtype and values.device == leaf.device
        with torch._C.DisableTorchFunction():  # for modes that look at the call, this is no part of it
            alike = alike and torch.equal(values, leaf)
        if not alike:
            return False
        self.tensor, self.version = weakref.ref(leaf), _version(leaf)
        return True


def _version(tensor):
    """How often torch has seen it change; None for an inference tensor, of which that is not counted."""
    return None if tensor.is_inference() else tensor._version


def _is_written_uncounted(tensor):
    return is_shared(tensor) or not tensor.untyped_storage().resizable()


def _random_states(leaves):
    """How far the generators have come that a call may draw from."""
    devices = sorted({leaf.device.index for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_cuda})
    generators = [torch.random.default_generator, *(torch.cuda.default_generators[index] for index in devices)]
    with torch._C.DisableTorchFunction():  # for modes that look at the call, this is no part of it
        return [generator.get_state().numpy().tobytes() for generator in generators]


def _can_be_told(leaf):
    if isinstance(leaf, PLAIN):
        return True
    plain = type(leaf) is torch.Tensor and leaf.layout == torch.strided and not leaf.is_nested
    return plain and not leaf.requires_grad
