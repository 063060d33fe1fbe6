# Ratchet: lent.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Large outputs of a recording that are handed out as they are, since to copy them would keep the device busy.

A recording writes over what it lent once nothing in this process holds that memory any more. Work that another stream
still does on it is not seen: that has to be waited for before the next call but one.
"""

import sys

import torch

from .kept import is_ordinary
from .undone import are_in_one_memory

_holders = getattr(torch._C, "_storage_Use_Count", None)  # what torch's own recordings count by


class Lent:
    """Those of more than `small` bytes that share no memory with another output or an input, by their places."""

    def __init__(self, outputs, inputs, small):
        tensors = {place: each for place, each in enumerate(outputs) if is_ordinary(each) and _holders}
        self.tensors = {
            place: each
            for place, each in tensors.items()
            if each.numel() * each.element_size() > small
            if not are_in_one_memory([each], [*inputs, *(other for at, other in tensors.items() if at != place)])
        }
        self.memory = [each.untyped_storage() for each in self.tensors.values()]
        self.holders = self._holders()

    def _holders(self):
        """How many tensors and how many objects of Python hold each memory."""
        return [(_holders(memory._cdata), sys.getrefcount(memory)) for memory in self.memory]

    def is_back(self):
        return not self.memory or self._holders() == self.holders

    def put_into(self, outputs):
        for place, tensor in self.tensors.items():
            outputs[place] = tensor.data  # what is written to it is no write to the recording's own
