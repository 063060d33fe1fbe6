# Ratchet: padding.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Inputs without the padding that no row needs.

`without_padding(mask, *tensors)` cuts off the end of each tensor where the mask, (rows, positions), holds `padding` in
every row. How much that is, is read from the mask, for which the host waits. Where it cannot be read (an exported
program, a graph that is captured, a mask that is none or of another form), nothing is cut off. What is left is rounded
up to STEP positions, so that compiled code meets fewer sizes. torch.compile is kept out: compiled on a GPU, torch 2.11
finds the last position in the eight bits of what it searches, so that 385 becomes 129.
"""

import torch

from .exporting import is_exporting

STEP = 8


def without_padding(mask, *tensors, padding=0):
    """The tensors in order; those with other than `mask.shape[1]` positions, and what is no tensor, as they are."""
    if is_exporting() or torch.jit.is_tracing():
        return tensors
    return _without_padding(mask, tensors, padding)


@torch.compiler.disable
def _without_padding(mask, tensors, padding):
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or mask.numel() == 0 or _cannot_be_read(mask):
        return tensors
    rows, width = mask.shape
    behind = int((mask != padding).any(0).flip(0).to(torch.uint8).argmax())  # 0 also where everything is padding
    length = min(width, -(-(width - behind) // STEP) * STEP)
    if length == width:
        return tensors
    return tuple(
        _cut(t, length)
        if isinstance(t, torch.Tensor) and t.dim() > 1 and t.shape[1] == width and t.shape[0] in (1, rows)
        else t
        for t in tensors
    )


def _cut(tensor, length):
    tensor = tensor[:, :length].contiguous()
    torch._dynamo.maybe_mark_dynamic(tensor, 1)  # or what is compiled would be compiled again at the next length
    return tensor


def _cannot_be_read(mask):
    return mask.is_meta or (mask.is_cuda and torch.cuda.is_current_stream_capturing())
