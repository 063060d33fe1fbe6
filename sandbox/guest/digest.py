"""The keyed digest that stops the clock: it binds a worker to every bit of its outputs before it is asked for them.

Binding matters more than speed of mixing. Outputs may differ in their low bits and still be right, so a worker has
thousands of bits to play with: a worker that can bend right outputs to a digest sent before they were computed need not
compute at all while timed. (Plain sums of mixed lanes, one 64-bit sum for each of 32 columns, were bent in 4 s by a
birthday search column by column, with rows 2e-6 off.) Therefore:

- what lies in host memory goes through SHA-256 as it is, at 1 to 2 GB/s and next to no fixed cost, and so does what
  is small on a device, after one copy;
- what is larger there is compressed to 32 sums of 64 bits, and these go through SHA-256. Lanes of 64 bits form
  rows of 32; each lane is mixed with the key and its position, four products over the row go back into every lane, it
  is mixed again, and the rows are added up. No lane of a row changes without all 32 sums changing unpredictably, so
  they can only be met together, which is 2048 bits.

    mix(x): x = (x ^ (x >> 29)) * M1;  x = (x ^ (x >> 32)) * M2        all modulo 2^64, >> arithmetic
    x[j] = mix(lane[j] ^ (GOLDEN * (position[j] + 1) + key))
    sum[j] += mix(x[j] ^ sum over k of B[k][j] * (sum over i of A[k][i] * x[i]))

The host has the same in `tools/judging/digest.py`.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
from typing import Any

import torch

digest_triton: Any = None  # without triton the same sums are made of torch operations
if importlib.util.find_spec("triton") is not None:
    from . import digest_triton

COLUMNS = 32
PRODUCTS = 4
SMALL_BYTES = 16 << 10  # so much is copied and hashed by the host, which spares launches
GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
M1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
M2 = -7723592293110705685  # 0x94D049BB133111EB

_made: dict = {}  # what depends on nothing but sizes, types and a device


class Digest:
    """16 hexadecimal digits over all tensors, in order. `key` is a signed 64-bit number.

    What it needs of a device is only asked for here, on the current stream: it waits there behind the work that makes
    the tensors. The digits are to be had once the whole device has been waited for.
    """

    def __init__(self, tensors, key):
        self.key = key
        self.parts = [self._part(index, tensor.detach()) for index, tensor in enumerate(tensors)]

    def _part(self, index, tensor):
        """(bytes of the tensor, what of it is hashed on the host, in host memory)"""
        tensor = tensor.resolve_conj().resolve_neg()
        nbytes = tensor.numel() * tensor.element_size()
        if tensor.device.type == "cpu":
            return nbytes, _bytes(tensor.contiguous())
        if nbytes > SMALL_BYTES:
            tensor = _sums(tensor, self.key + index)
        held, as_bytes = _held(index, tensor)
        held.copy_(tensor, non_blocking=True)
        return nbytes, as_bytes

    def digits(self):
        state = hashlib.sha256(self.key.to_bytes(8, "little", signed=True))
        for nbytes, part in self.parts:
            state.update(nbytes.to_bytes(8, "little"))
            state.update(part)
        return state.hexdigest()[:16]


def _held(index, like):
    """Memory of the host that a device copies into by itself, for the output of this number, and its bytes."""
    at = index, like.shape, like.dtype
    if at not in _made:
        held = torch.empty(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
        _made[at] = held, _bytes(held)
    return _made[at]


def _bytes(tensor):
    """The bytes of a contiguous tensor in host memory, which stay valid as long as it lives."""
    nbytes = tensor.numel() * tensor.element_size()
    if not nbytes:
        return b""
    view = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
    view.tensor = tensor
    return view


def _sums(tensor, key):
    lanes, key = _lanes(tensor), _wrap(key)
    if digest_triton is not None and lanes.is_cuda:
        return digest_triton.sums(lanes, key, COLUMNS)
    count = lanes.numel()
    padded = -(-count // COLUMNS) * COLUMNS
    if padded != count:
        lanes = torch.nn.functional.pad(lanes, (0, padded - count))
    x = _mix(lanes ^ (_position(padded, lanes.device) + key)).view(-1, COLUMNS)
    into, back = _factors(lanes.device)
    spread = sum((x * into[k]).sum(1, keepdim=True) * back[k] for k in range(PRODUCTS))
    return _mix(x ^ spread).sum(0)


def _mix(x):
    x = (x ^ (x >> 29)) * M1
    return (x ^ (x >> 32)) * M2


def _lanes(tensor):
    flat = tensor.contiguous().reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    flat = flat.view(torch.uint8)
    if flat.numel() % 8:
        flat = torch.nn.functional.pad(flat, (0, 8 - flat.numel() % 8))
    if flat.storage_offset() % 8:
        flat = flat.clone()
    return flat.view(torch.int64)


def _position(count, device):
    if (count, device) not in _made:
        _made[count, device] = torch.arange(1, count + 1, dtype=torch.int64, device=device) * GOLDEN
    return _made[count, device]


def _factors(device):
    """A and B: int64[PRODUCTS, COLUMNS], odd."""
    if device not in _made:
        numbers = torch.arange(1, 2 * PRODUCTS * COLUMNS + 1, dtype=torch.int64, device=device)
        _made[device] = (_mix(numbers * GOLDEN) | 1).view(2, PRODUCTS, COLUMNS)
    return _made[device]


def _wrap(value):
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
