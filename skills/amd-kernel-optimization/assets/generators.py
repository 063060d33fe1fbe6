# Ratchet: generators.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What a call draws from random number generators is seen by their states."""

import pickle
import random
import sys

import torch


class Generators:
    """The states of all that random numbers are drawn from by default."""

    def __init__(self):
        self._states = {name: get() for name, (get, _) in _generators().items()}

    def have_moved(self):
        """Also where there is one more: nobody knows what was drawn from it."""
        now = Generators()._states
        return now.keys() != self._states.keys() or any(not _is_same(now[n], then) for n, then in self._states.items())

    def put_back(self):
        for name, (_, put) in _generators().items():
            if name in self._states:
                put(self._states[name])


def _generators():
    """How to get and set the state of each, by its name."""
    numpy = sys.modules.get("numpy")
    made = {"random": (random.getstate, random.setstate)}
    if numpy:
        made["numpy"] = numpy.random.get_state, numpy.random.set_state
    own = (torch.default_generator, *torch.cuda.default_generators)  # of devices none before the first is used
    return made | {str(each.device): (each.get_state, each.set_state) for each in own}


def _is_same(now, then):
    if not isinstance(now, torch.Tensor):
        return pickle.dumps(now) == pickle.dumps(then)
    with torch._C.DisableTorchFunction():  # for modes that look at the call, this is no part of it
        return torch.equal(now, then)
