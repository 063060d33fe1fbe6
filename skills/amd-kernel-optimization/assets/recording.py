# Ratchet: recording.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Results that stay out of a recording of a whole call, such as those that `remembered` keeps for the same input.

Code in a call that is being recorded may ask `current()` for such a result. It is computed outside the recording,
before each replay, and is an input of the recording like those of the call.
"""

import contextlib
import threading
import weakref

import torch
from torch.utils import _pytree

from .eager import is_capturing
from .kept import PLAIN, Same, exactly

_state = threading.local()


def current():
    """The recording that is being made in this thread, or None."""
    return getattr(_state, "recording", None)


class Recording:
    """`inputs` are the recording's own: tensors and plain values, as many as each call has."""

    def __init__(self, inputs):
        self._inputs, self._results = inputs, []

    @contextlib.contextmanager
    def being_made(self):
        before, _state.recording = current(), self
        try:
            yield
        finally:
            _state.recording = before

    def result(self, compute, module, args, kwargs):
        """What `compute(module, *args, **kwargs)` gives, in a place that does not move; None where it cannot stay out:
        when it was computed from other tensors than the inputs or lies elsewhere, or is asked for first while a stream
        is captured.
        """
        leaves, form = _pytree.tree_flatten((args, kwargs))
        given = [self._named(leaf) for leaf in leaves]
        if None in given:
            return None
        key = (compute, weakref.ref(module), form, given)
        found = next((r for r in self._results if r.key == key), None)
        if found is None:
            if is_capturing():
                return None
            outs, out_form = self._outside(key, self._inputs)
            devices = {leaf.device for leaf in self._inputs if isinstance(leaf, torch.Tensor)}
            if not all(
                out.device in devices if isinstance(out, torch.Tensor) else isinstance(out, PLAIN) for out in outs
            ):
                return None
            found = _Result(key, outs, out_form)
            self._results.append(found)
        return found.value()

    def refresh(self, leaves):
        """Bring the results up to date for a call with these inputs. False when they have another form now."""
        return all(result.take(*self._outside(result.key, leaves)) for result in self._results)

    def holds(self):
        """Whether the results were only read, and are the same outside of the call: not when it changes for a while
        what they depend on, such as an adapter or autocast.
        """
        return all(result.holds(*self._outside(result.key, self._inputs)) for result in self._results)

    def _named(self, leaf):
        """("input", its place, None) or ("value", itself, what it says); None for what is neither."""
        if isinstance(leaf, torch.Tensor):
            return next((("input", place, None) for place, mine in enumerate(self._inputs) if mine is leaf), None)
        return ("value", leaf, exactly(leaf)) if isinstance(leaf, PLAIN) else None

    def _outside(self, key, inputs):
        """(leaves, form) of the result; of no form when the module is gone."""
        compute, reference, form, given = key
        module = reference()
        if module is None:
            return [], None
        leaves = [inputs[value] if kind == "input" else value for kind, value, _ in given]
        args, kwargs = _pytree.tree_unflatten(leaves, form)
        before, _state.recording = current(), None
        try:
            return _pytree.tree_flatten(compute(module, *args, **kwargs))
        finally:
            _state.recording = before


class _Result:
    """Tensors that stay where they are, with what they were copied from last, and plain values."""

    def __init__(self, key, outs, form):
        self.key, self._form = key, form
        with torch.inference_mode(False), torch.no_grad():  # in inference mode, writing to them would not be counted
            self._mine = [torch.empty_like(o).copy_(o) if isinstance(o, torch.Tensor) else o for o in outs]
        self._as_made, self._taken = list(map(_same, self._mine)), list(map(_same, outs))

    def value(self):
        return _pytree.tree_unflatten(self._mine, self._form)

    def holds(self, outs, form):
        """Before anything was taken."""
        unwritten = all(same is None or same.is_unwritten(o) for o, same in zip(self._mine, self._as_made, strict=True))
        return unwritten and self._is_of_this_form(outs, form) and all(map(_equal, outs, self._mine))

    def take(self, outs, form):
        if not self._is_of_this_form(outs, form):
            return False
        for index, (out, mine) in enumerate(zip(outs, self._mine, strict=True)):
            if isinstance(mine, torch.Tensor) and not self._taken[index].is_still(out):
                mine.copy_(out)
                self._taken[index] = Same(out)
        return True

    def _is_of_this_form(self, outs, form):
        return form == self._form and all(map(_alike, outs, self._mine))


def _same(value):
    return Same(value) if isinstance(value, torch.Tensor) else None


def _alike(out, mine):
    if not isinstance(mine, torch.Tensor):
        return exactly(out) == exactly(mine)
    facts = (mine.shape, mine.dtype, mine.device)
    return isinstance(out, torch.Tensor) and (out.shape, out.dtype, out.device) == facts


def _equal(out, mine):
    return not isinstance(mine, torch.Tensor) or torch.equal(out, mine)
