"""Seal inputs: what was loaded before its key is known says nothing, so nothing can be computed from it.

Loading a large input takes much longer than a call on a device, and differs by more than a call from one worker to the
next, so no clock could tell whether part of the call was done meanwhile. Opening one is a single pass where the tensors
lie. Refuses to be encryption: the pad comes again every 256 KiB, which is enough against code that has milliseconds.
"""

from __future__ import annotations

import torch

from .digest import GOLDEN, mix, wrap

PAD_WORDS = 1 << 15  # of 8 bytes


def turn(tensors, key):
    """Seal these contiguous tensors in place, or open them again. `key` is a signed 64-bit number."""
    with torch.no_grad():
        for index, tensor in enumerate(tensors):
            if tensor.numel():
                _turn(tensor, wrap(key + index * GOLDEN))


def _turn(tensor, key):
    flat = tensor.reshape(-1)
    flat = (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(torch.uint8)
    words = flat[: flat.numel() // 8 * 8].view(torch.int64)
    pad = _pad(min(PAD_WORDS, words.numel() + 1), key, tensor.device)
    whole = words.numel() // PAD_WORDS * PAD_WORDS
    if whole:
        words[:whole].view(-1, PAD_WORDS).bitwise_xor_(pad)
    words[whole:].bitwise_xor_(pad[: words.numel() - whole])
    rest = flat[words.numel() * 8 :]
    rest.bitwise_xor_(pad[-1:].view(torch.uint8)[: rest.numel()])


def _pad(count, key, device):
    """int64[count]: what the key makes of each position."""
    return mix(mix(torch.arange(1, count + 1, dtype=torch.int64, device=device) * GOLDEN + key) ^ key)
