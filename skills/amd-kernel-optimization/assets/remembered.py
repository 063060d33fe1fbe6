# Ratchet: remembered.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What a module gave for the same input before.

`remembered(module, *args, **kwargs)` is `module(*args, **kwargs)`, kept under everything that it depends on: the values
of its tensors, its plain arguments, the weights, buffers and plain attributes of the module and of those in it. It
remembers nothing while training or where gradients are recorded, in autocast, under function transforms, dispatch
modes and hooks, and for results that are no tensors; a result that somebody wrote to is computed anew. Where a call is
recorded by `graphed`, what is remembered of its inputs is an input, too; in other recordings it is recorded. Hooks on
all modules at once are not called where no module is. A tensor that is the same object is taken as unchanged when torch
counts no change of it: what writes to memory behind torch's back (`.data`, a kernel of one's own) is not seen.
"""

import weakref

import torch
from torch.utils import _pytree

from .exporting import is_exporting
from .recording import current
from .watched import Watched

MOST = 4  # results kept of one module, such as those with and without a condition
MISSES = 16  # in a row, after which a module or its inputs are taken to change always

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_kept = weakref.WeakKeyDictionary()  # module -> _Results


def remembered(module, *args, **kwargs):
    """The result of `module(*args, **kwargs)`. Do not change it in place."""
    if is_exporting() or torch.jit.is_scripting() or torch.jit.is_tracing():
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
    if results.misses > MISSES or _more_happens():
        return module(*args, **kwargs)
    leaves, form = _pytree.tree_flatten((args, kwargs))
    if not all(map(_can_be_told, leaves)) or not results.can_be_used(module):
        return module(*args, **kwargs)
    entry = results.find(form, leaves)
    if entry is None:
        with torch.inference_mode(False), torch.no_grad():  # or it could never be told whether the result was changed
            entry = results.add(_Entry(form, leaves, module(*args, **kwargs)))
    return entry.result()


class _Results:
    """Of one module as it is now, the last used first."""

    def __init__(self):
        self.entries, self.misses, self.state = [], 0, None

    def can_be_used(self, module):
        if self.state is None or not self.state.is_unchanged():
            self.entries, self.state = [], Watched(module)
        return self.state.usable and not (torch.is_grad_enabled() and self.state.needs_gradient())

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

    def add(self, entry):
        if not entry.usable:
            self.give_up()
        elif self.misses <= MISSES:
            self.entries = [entry, *self.entries[: MOST - 1]]
        else:
            self.give_up()
        return entry

    def give_up(self):
        self.entries, self.state, self.misses = [], None, MISSES + 1


class _Entry:
    """A result, and what it was computed from."""

    def __init__(self, form, leaves, result):
        self.form = form
        self.given = [_Given(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.outs, self.out_form = _pytree.tree_flatten(result)
        self.usable = all(
            isinstance(out, _PLAIN) or (type(out) is torch.Tensor and not out.requires_grad) for out in self.outs
        )
        self.versions = [_version(out) if isinstance(out, torch.Tensor) else None for out in self.outs]

    def is_for(self, leaves):
        return all(
            given.is_same(leaf) if isinstance(given, _Given) else type(given) is type(leaf) and given == leaf
            for given, leaf in zip(self.given, leaves, strict=True)
        )

    def is_intact(self):
        return all(v is None or _version(out) == v for out, v in zip(self.outs, self.versions, strict=True))

    def result(self):
        """In containers of its own."""
        return _pytree.tree_unflatten(self.outs, self.out_form)


class _Given:
    """A tensor that was given: itself, while it lives, and a copy of its values."""

    def __init__(self, tensor):
        self.tensor, self.version, self.values = weakref.ref(tensor), _version(tensor), tensor.detach().clone()

    def is_same(self, leaf):
        if not isinstance(leaf, torch.Tensor):
            return False
        if self.tensor() is leaf and self.version is not None and _version(leaf) == self.version:
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


def _can_be_told(leaf):
    if isinstance(leaf, _PLAIN):
        return True
    return type(leaf) is torch.Tensor and not leaf.requires_grad and leaf.layout == torch.strided


def _more_happens():
    """Whether operations mean something else at the moment, or are recorded."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._is_any_autocast_enabled()
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )
