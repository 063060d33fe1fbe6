"""The keyed digest that stops the clock: it binds a worker to every bit of its outputs before it is asked for them.

Binding matters more than speed of mixing. Outputs may differ in their low bits and still be right, so a worker has
thousands of bits to play with: whoever can bend right outputs to a digest sent before they were computed need not
compute at all while timed. (Plain sums of mixed lanes, one 64-bit sum for each of 32 columns, were bent in 4 s by a
birthday search column by column, with rows 2e-6 off.) Therefore:

- what lies in host memory goes through SHA-256 as it is, at 1 to 2 GB/s and next to no fixed cost;
- what lies on a device is compressed there to 32 sums of 64 bits, and these go through SHA-256. Lanes of 64 bits form
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
GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
M1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
M2 = -7723592293110705685  # 0x94D049BB133111EB

_made: dict = {}  # what depends on nothing but a size and a device


def digest(tensors, key):
    """16 hexadecimal digits over all tensors, in order. `key` is a signed 64-bit number."""
    tensors = [tensor.detach().resolve_conj().resolve_neg() for tensor in tensors]
    sums = _all_sums(tensors, key)
    state = hashlib.sha256(key.to_bytes(8, "little", signed=True))
    for tensor in tensors:
        nbytes = tensor.numel() * tensor.element_size()
        state.update(nbytes.to_bytes(8, "little"))
        if tensor.device.type != "cpu":
            for value in next(sums):
                state.update(value.to_bytes(8, "little", signed=True))
        elif nbytes:
            tensor = tensor.contiguous()
            state.update((ctypes.c_char * nbytes).from_address(tensor.data_ptr()))
    return state.hexdigest()[:16]


def _all_sums(tensors, key):
    """The sums of every tensor on a device; one transfer for all."""
    found = [_sums(tensor, key + index) for index, tensor in enumerate(tensors) if tensor.device.type != "cpu"]
    if len({sums.device for sums in found}) > 1:
        found = [sums.cpu() for sums in found]
    return iter(torch.stack(found).tolist() if found else [])


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
