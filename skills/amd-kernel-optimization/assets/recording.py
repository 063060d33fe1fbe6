# Ratchet: recording.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Results that stay out of a recording of a whole call, such as what a part of it gave for the same input before.

While a call is recorded, the code in it may ask `current()` for such a result. It is computed outside, before each
replay, and is an input of the recording like those of the call.
"""

import contextlib
import threading
import weakref

import torch
from torch.utils import _pytree

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)
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
        when it was computed from other tensors than the inputs, or is asked for first while a stream is captured.
        """
        leaves, form = _pytree.tree_flatten((args, kwargs))
        given = [self._named(leaf) for leaf in leaves]
        if None in given:
            return None
        key = (compute, weakref.ref(module), form, given)
        found = next((r for r in self._results if r.key == key), None)
        if found is None:
            if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
                return None
            outs, out_form = self._outside(key, self._inputs)
            if not all(isinstance(out, torch.Tensor) for out in outs):
                return None
            found = _Result(key, outs, out_form)
            self._results.append(found)
        return found.value()

    def refresh(self, leaves):
        """Bring the results up to date for a call with these inputs. False when they have another form now."""
        return all(result.take(*self._outside(result.key, leaves)) for result in self._results)

    def was_written_to(self):
        return any(result.was_written_to() for result in self._results)

    def _named(self, leaf):
        """("input", its place) or (type, value); None for what is neither an input nor a plain value."""
        if isinstance(leaf, torch.Tensor):
            return next((("input", place) for place, mine in enumerate(self._inputs) if mine is leaf), None)
        return (type(leaf), leaf) if isinstance(leaf, _PLAIN) else None

    def _outside(self, key, inputs):
        compute, module, form, given = key
        leaves = [inputs[value] if kind == "input" else value for kind, value in given]
        args, kwargs = _pytree.tree_unflatten(leaves, form)
        before, _state.recording = current(), None
        try:
            return _pytree.tree_flatten(compute(module(), *args, **kwargs))
        finally:
            _state.recording = before


class _Result:
    """Tensors that stay where they are, and what they were copied from last."""

    def __init__(self, key, outs, form):
        self.key, self._form = key, form
        with torch.inference_mode(False):  # or writing to them would not be counted
            self._mine = [torch.empty_like(out).copy_(out) for out in outs]
        self._versions = [mine._version for mine in self._mine]
        self._taken = [_taken(out) for out in outs]

    def value(self):
        return _pytree.tree_unflatten(self._mine, self._form)

    def was_written_to(self):
        return self._versions != [mine._version for mine in self._mine]

    def take(self, outs, form):
        if form != self._form or any(map(_differ, outs, self._mine)):
            return False
        for index, (out, mine) in enumerate(zip(outs, self._mine, strict=True)):
            last, version = self._taken[index]
            if version is None or last() is not out or _version(out) != version:
                mine.copy_(out)
                self._taken[index] = _taken(out)
        return True


def _differ(out, mine):
    if not isinstance(out, torch.Tensor):
        return True
    return (out.shape, out.dtype, out.device) != (mine.shape, mine.dtype, mine.device)


def _taken(tensor):
    return weakref.ref(tensor), _version(tensor)


def _version(tensor):
    return None if tensor.is_inference() else tensor._version
