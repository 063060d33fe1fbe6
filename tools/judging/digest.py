"""The host's half of the keyed digest: the same as `sandbox/guest/digest.py`, from raw bytes with numpy."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tools.judging.tensors import Data

COLUMNS = 32
PRODUCTS = 4
SMALL_BYTES = 16 << 10
GOLDEN = np.int64(-7046029254386353131)
M1 = np.int64(-4658895280553007687)
M2 = np.int64(-7723592293110705685)
CHUNK_LANES = 1 << 19  # 4 MiB at a time: a large output needs no second copy of itself, and stays in a cache


class Bytes(Protocol):
    """What is known of a saved tensor: see `tools.judging.tensors.Leaf`."""

    @property
    def data(self) -> Data: ...

    @property
    def device(self) -> str: ...


def digest(leaves: Sequence[Bytes], key: int) -> str:
    """16 hexadecimal digits over the raw bytes of all leaves, in order. `key` is a signed 64-bit number.

    A worker says itself where a leaf lay; both ways bind it, so nothing hangs on that being true.
    """
    state = hashlib.sha256(key.to_bytes(8, "little", signed=True))
    for index, leaf in enumerate(leaves):
        state.update(leaf.data.size.to_bytes(8, "little"))
        if leaf.device == "cpu" or leaf.data.size <= SMALL_BYTES:
            for start in range(0, leaf.data.size, CHUNK_LANES * 8):
                state.update(np.ascontiguousarray(leaf.data[start : start + CHUNK_LANES * 8]).data)
        else:
            state.update(_sums(leaf.data, key + index).astype("<i8").tobytes())
    return state.hexdigest()[:16]


def _sums(raw: Data, key: int) -> NDArray[np.int64]:
    """int64[COLUMNS]. On all cores: it is a sum over chunks, and a large output has hundreds of megabytes."""
    wrapped = np.int64((key + (1 << 63)) % (1 << 64) - (1 << 63))
    starts = range(0, raw.size, CHUNK_LANES * 8)
    with ThreadPoolExecutor(max(1, min(len(starts), len(os.sched_getaffinity(0))))) as pool:
        return sum(pool.map(lambda start: _sums_of_chunk(raw, wrapped, start), starts), np.zeros(COLUMNS, np.int64))


def _sums_of_chunk(raw: Data, key: np.int64, start: int) -> NDArray[np.int64]:
    part = raw[start : start + CHUNK_LANES * 8]
    padded = np.zeros(-(-part.size // (8 * COLUMNS)) * 8 * COLUMNS, dtype=np.uint8)
    padded[: part.size] = part
    x = padded.view("<i8")
    with np.errstate(over="ignore"):
        into, back = _factors()
        position = np.arange(start // 8 + 1, start // 8 + x.size + 1, dtype=np.int64) * GOLDEN + key
        rows = _mix(x ^ position).reshape(-1, COLUMNS)
        spread = np.zeros_like(rows)
        for k in range(PRODUCTS):
            spread += (rows * into[k]).sum(axis=1, keepdims=True, dtype=np.int64) * back[k]
        return _mix(rows ^ spread).sum(axis=0, dtype=np.int64)


def _mix(x: NDArray[Any]) -> NDArray[Any]:
    x = (x ^ (x >> 29)) * M1
    return (x ^ (x >> 32)) * M2


def _factors() -> NDArray[np.int64]:
    """A and B: int64[2, PRODUCTS, COLUMNS], odd."""
    numbers = np.arange(1, 2 * PRODUCTS * COLUMNS + 1, dtype=np.int64)
    return (_mix(numbers * GOLDEN) | 1).reshape(2, PRODUCTS, COLUMNS)
