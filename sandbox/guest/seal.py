"""Seal inputs: without the key a loaded input shows only its shapes, so nothing can be computed from it.

Loading a large input takes much longer than a call on a device, and varies by more than a call between workers, so the
clock could not tell whether part of the call was done meanwhile. Opening one is a single pass on the device. On a CPU
the pad comes from a generator of 32 bits, enough for milliseconds.
"""

from __future__ import annotations

import hashlib
import json

import torch


def hidden(structure, key):
    """A node that holds this structure, and the values in it, under a key: any whole number."""
    return {"t": "sealed", "v": _xor(json.dumps(structure).encode(), key).hex()}


def shown(node, key):
    """The structure again. Raises: ValueError where it is another key."""
    return json.loads(_xor(bytes.fromhex(node["v"]), key))


def is_hidden(node):
    return node["t"] == "sealed"


def _xor(data, key):
    stream = hashlib.shake_256(str(key).encode()).digest(len(data))
    return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))


def turn(tensor, key, index):
    """Seal the contiguous tensor of this number in place, or open it again. On devices of one model it is the same."""
    if not tensor.numel():
        return
    flat = tensor.reshape(-1)
    flat = (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(torch.uint8)
    words = flat[: flat.numel() // 8 * 8].view(torch.int64)
    pad = _pad(words.numel() + 1, key, index, tensor.device)
    words.bitwise_xor_(pad[:-1])
    rest = flat[words.numel() * 8 :]
    if rest.numel():
        rest.bitwise_xor_(pad[-1:].view(torch.uint8)[: rest.numel()])


def _pad(count, key, index, device):
    """int64[count], of which no part tells anything of another, or of another tensor's."""
    seed = hashlib.sha256(f"{key} {index}".encode()).digest()[:8]
    generator = torch.Generator(device).manual_seed(int.from_bytes(seed, "little"))
    return torch.empty(count, dtype=torch.int64, device=device).random_(-(1 << 63), None, generator=generator)
