# Ratchet: padded_linear.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Keep the rows of linear layers' weights apart, so that they do not all begin in the same channel of the memory.

`pad_linears(module)`, at the end of its `__init__`: every plain nn.Linear below it whose rows lie a multiple of 512
bytes apart gets 256 bytes between them, wherever it is moved. Products read such weights as they are; results, shapes
and state dicts are the same, and the memory grows by 256 bytes a row. The weights are no longer contiguous: a
checkpoint format that asks for that (safetensors) needs `.contiguous()` first. Weights that are assigned instead of
copied when a state dict is loaded, and those of a deepcopy, lie as they come. Nothing is padded where processes work
together: who flattens weights to share them out (FSDP) takes them as contiguous.

The layers become ones of a subclass: see plain_linears.py.
"""

import torch
from torch import nn

from .plain_linears import plain_linears
from .processes import work_together

PERIOD_BYTES = 512
GAP_BYTES = 256
DEVICES = ("cuda",)  # what PyTorch calls AMD's GPUs as well


def pad_linears(module):
    for layer in plain_linears(module):
        layer.__class__ = PaddedLinear
        layer.pad()


class PaddedLinear(nn.Linear):
    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.pad()
        return self

    def pad(self):
        """Does nothing where it is done already, or does not help."""
        held = self._parameters.get("weight")
        if type(held) is not nn.Parameter or type(held.data) is not torch.Tensor or held.dim() != 2 or work_together():
            return
        weight = held.data
        row_bytes = weight.shape[1] * weight.element_size()
        if weight.device.type in DEVICES and weight.is_contiguous() and row_bytes and row_bytes % PERIOD_BYTES == 0:
            wider = weight.new_empty(weight.shape[0], weight.shape[1] + GAP_BYTES // weight.element_size())
            held.data = wider[:, : weight.shape[1]].copy_(weight)
