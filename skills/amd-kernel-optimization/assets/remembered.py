# Ratchet: remembered.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What a module gave for the same input before.

`remembered(module, *args, **kwargs)` is `module(*args, **kwargs)`, kept under everything that it depends on: the values
of its tensors, its plain arguments, the weights, buffers and attributes of the module and of those in it (see
watched.py, and sampled.py for writes that torch does not count). It remembers nothing while training or where gradients
are recorded, in autocast, under function transforms, dispatch modes and hooks, of a call that draws random numbers or
writes to what it is given (a tensor, or a list or dict with the arguments in it), and for results that are no plain
tensors; a result that was written to is computed again, and another stream than it was computed on waits for it. Where
a call is recorded by `graphed`, what is remembered of its inputs is an input, too; in other recordings it is recorded.
Hooks on all modules at once are not called where no module is, and code around it that is compiled breaks there.
"""

import operator

import torch
from torch.utils import _pytree

from .computed import Computed
from .eager import is_capturing, is_exporting, is_plain
from .generators import Generators
from .kept import PLAIN, Same, equal, exactly, is_ordinary
from .per_module import PerModule
from .sampled import Sampled
from .watched import Watched

try:
    from .recording import current
except ImportError:  # it comes with `graphed`
    current = type(None)  # which returns None


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
    if recording is not None or results.misses > MISSES or is_capturing() or not is_plain():
        return module(*args, **kwargs)
    leaves, form = _pytree.tree_flatten((args, kwargs))
    if not all(map(_can_be_told, leaves)) or not results.can_be_used(module):
        return module(*args, **kwargs)
    entry = results.find(form, leaves)
    if entry is not None:
        return entry.result()
    entry, generators = _Entry(form, leaves), Generators()
    try:
        with torch.inference_mode(False), torch.no_grad():  # or it could never be told whether the result was changed
            result = module(*args, **kwargs)
    except RuntimeError:  # an inference tensor, say, that the module writes to
        results.give_up()
        return module(*args, **kwargs)
    now, form_now = _pytree.tree_flatten((args, kwargs))
    held = form_now == form and all(map(operator.is_, now, leaves))
    if not (held and entry.take(result, leaves) and results.misses <= MISSES):
        results.give_up()
        return result
    if generators.have_moved():  # by this call or, while it ran, by another thread: then not the next time, perhaps
        return result
    results.entries = [entry, *results.entries[: MOST - 1]]
    return entry.result()


class _Results:
    """Of one module as it is now, the last used first."""

    def __init__(self):
        self.entries, self.misses, self.state, self.weights = [], 0, None, None

    def can_be_used(self, module):
        if not (self.state and self.state.is_unchanged() and self.weights.are_still(self.state.tensors())):
            self.entries, self.state = [], Watched(module)
            self.weights = Sampled(self.state.tensors())
        usable = self.state.only_computes and self.state.is_counted
        return usable and not (torch.is_grad_enabled() and self.state.needs_gradient())

    def find(self, form, leaves):
        for index, entry in enumerate(self.entries):
            if entry.form == form and entry.is_for(leaves):
                if entry.is_intact():
                    self.misses = 0
                    self.entries.insert(0, self.entries.pop(index))
                    return entry
                self.give_up()  # a caller writes to what it is given
                return None
        self.misses += 1
        return None

    def give_up(self):
        self.entries, self.state, self.weights, self.misses = [], None, None, MISSES + 1


class _Entry:
    """A result, and what it was computed from."""

    def __init__(self, form, leaves):
        self.form = form
        self.given = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def take(self, result, leaves):
        """Whether it can be kept: the call that was made of these leaves has written to none."""
        outs, self.out_form = _pytree.tree_flatten(result)
        theirs = [leaf.untyped_storage().data_ptr() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not all(map(_can_be_told, outs)):
            return False
        with torch.inference_mode(False), torch.no_grad():  # an input that is handed on is the caller's
            self.outs = [out.clone() if isinstance(out, torch.Tensor) and _is_of(out, theirs) else out for out in outs]
        self.tensors = [(out, Same(out)) for out in self.outs if isinstance(out, torch.Tensor)]
        given = [each for each in self.given if isinstance(each, torch.Tensor)]
        self.computed = Computed([*(out for out, _ in self.tensors), *given])
        return all(map(_are_same, self.given, leaves))

    def is_for(self, leaves):
        self.computed.for_here([out for out, _ in self.tensors])
        return all(map(_are_same, self.given, leaves))

    def is_intact(self):
        return all(same.is_unwritten(out) for out, same in self.tensors)

    def result(self):
        """In containers of its own; on a CPU in memory of its own, too, which NumPy may write to uncounted."""
        own = [out.clone() if isinstance(out, torch.Tensor) and out.device.type == "cpu" else out for out in self.outs]
        return _pytree.tree_unflatten(own, self.out_form)


def _are_same(given, leaf):
    if not (isinstance(given, torch.Tensor) and isinstance(leaf, torch.Tensor)):
        return exactly(given) == exactly(leaf)
    alike = given.shape == leaf.shape and given.dtype == leaf.dtype and given.device == leaf.device
    return alike and equal(given, leaf)


def _is_of(out, theirs):
    return out.is_inference() or out.untyped_storage().data_ptr() in theirs


def _can_be_told(leaf):
    return isinstance(leaf, PLAIN) or (is_ordinary(leaf) and not leaf.requires_grad)
