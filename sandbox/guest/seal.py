"""Seal inputs: what was loaded before its key is known says nothing, so nothing can be computed from it.

Loading a large input takes much longer than a call on a device, and differs by more than a call from one worker to the
next, so no clock could tell whether part of the call was done meanwhile. Opening one is a single pass where the tensors
lie. Refuses to be encryption: the pad comes again every 256 KiB, which is enough against code that has milliseconds.
"""

from __future__ import annotations

import torch

from .digest import GOLDEN, mix, wrap

PAD_WORDS = 1 << 15  # of 8 bytes


def sealed(tensor, key, index):
    """A contiguous copy of the tensor of this number. `key` is a signed 64-bit number."""
    found = tensor.clone(memory_format=torch.contiguous_format)
    _turn(found, key, index)
    return found


def open_all(tensors, key):
    """Open in place what was sealed; no tensor is what it was with another key or number."""
    for index, tensor in enumerate(tensors):
        _turn(tensor, key, index)


@torch.no_grad()
def _turn(tensor, key, index):
    if not tensor.numel():
        return
    flat = tensor.reshape(-1)
    flat = (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(torch.uint8)
    words = flat[: flat.numel() // 8 * 8].view(torch.int64)
    pad = _pad(min(PAD_WORDS, words.numel() + 1), wrap(key + index * GOLDEN), tensor.device)
    whole = words.numel() // PAD_WORDS * PAD_WORDS
    if whole:
        words[:whole].view(-1, PAD_WORDS).bitwise_xor_(pad)
    words[whole:].bitwise_xor_(pad[: words.numel() - whole])
    rest = flat[words.numel() * 8 :]
    rest.bitwise_xor_(pad[-1:].view(torch.uint8)[: rest.numel()])


def _pad(count, key, device):
    """int64[count]: what the key makes of each position."""
    return mix(mix(torch.arange(1, count + 1, dtype=torch.int64, device=device) * GOLDEN + key) ^ key)
