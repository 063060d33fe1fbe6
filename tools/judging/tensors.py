"""Read tensor files on the host: raw bytes and a bounded header, no torch, no pickle, no code of the target.

They are not mapped: their writer may still run, and truncating a mapped file ends the process that reads it (SIGBUS).
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from sandbox.guest import tensor_file
from sandbox.guest.tensor_file import BadTensorFile
from tools.judging import disk

__all__ = ["BadTensorFile", "Folder", "Leaf", "Saved", "checked_length", "opened", "read"]

_EXACT = {
    "bool": "?",
    "uint8": "u1",
    "int8": "i1",
    "int16": "<i2",
    "uint16": "<u2",
    "int32": "<i4",
    "uint32": "<u4",
    "int64": "<i8",
    "uint64": "<u8",
}
_FLOAT = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<f4", "complex128": "<f8"}
_BLOCK_BYTES = 32 << 20
_MOST_AT_ONCE = 1 << 30  # of one read; the kernel takes no more than 2 GiB


Rows = Sequence[tuple[int, Sequence[int], Sequence[int], int]]
"""Of some tensors of a file: index, shape, where rows of the last dimension begin, how many are taken from there."""


class Data(Protocol):
    """Bytes in memory (an array of uint8) or in a file."""

    @property
    def size(self) -> int: ...

    def __getitem__(self, span: slice, /) -> NDArray[np.uint8]: ...


class _Open:
    """A descriptor that is closed when its last reader is gone."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True)
class _InFile:
    """Some bytes of an open file, read again whenever they are asked for."""

    file: _Open
    begin: int
    size: int

    def __getitem__(self, span: slice, /) -> NDArray[np.uint8]:
        """Raises: BadTensorFile when the file has become shorter."""
        start, stop, _ = span.indices(self.size)
        found = np.empty(max(0, stop - start), dtype=np.uint8)
        left, position = found.data, self.begin + start
        while left:
            done = os.preadv(self.file.descriptor, [left[:_MOST_AT_ONCE]], position)
            if not done:
                raise BadTensorFile("it became shorter while it was read")
            left, position = left[done:], position + done
        return found


@dataclass(frozen=True)
class Leaf:
    """One tensor: its header entry and its bytes, which are not read from the file until used."""

    dtype: str
    shape: tuple[int, ...]
    kind: str  # the class it had in the worker: "Tensor", "Parameter", …
    device: str
    data: Data
    grad: bool = False  # whether a gradient would flow back from it
    borrowed: str = ""  # which argument it shares memory with
    keeps: int = 0  # bytes of memory that live as long as it does
    is_of_inference: bool = False  # made in inference mode, after which it takes part in no training
    is_contiguous: bool = True
    is_spread: bool = False  # whether numbers of it have one place in memory
    part_of: tuple[int, ...] = ()  # the shape of the tensor that these are rows of; empty where it is all of it

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return self.part_of or self.shape

    @property
    def nbytes(self) -> int:
        return self.data.size

    @property
    def raw(self) -> NDArray[np.uint8]:
        """All of its bytes. Raises: BadTensorFile (as everything that reads them)."""
        return self.data[0 : self.nbytes]

    def same_bytes(self, other: Leaf) -> bool:
        """Without holding either in memory."""
        if self.nbytes != other.nbytes:
            return False
        spans = (slice(start, start + _BLOCK_BYTES) for start in range(0, self.nbytes, _BLOCK_BYTES))
        return all(np.array_equal(self.data[span], other.data[span]) for span in spans)

    def head(self, most: int) -> Leaf:
        """At most about so many of its numbers: of each item of the first dimension the first rows; itself if small."""
        if self.elements <= most or len(self.shape) < 2:
            return self
        rows = max(1, int(np.prod(self.shape[1:-1], dtype=np.int64)))
        items = max(2, min(self.shape[0], most // max(1, self.row_length)))
        kept = max(1, min(rows, most // (items * max(1, self.row_length))))
        width, length = self.nbytes // self.shape[0], self.nbytes // (self.shape[0] * rows) * kept
        parts = [self.data[at * width : at * width + length] for at in range(min(items, self.shape[0]))]
        between = [kept] if len(self.shape) > 2 else []
        return replace(self, shape=(len(parts), *between, self.shape[-1]), data=np.concatenate(parts))

    def rows(self, begins: Sequence[int], together: int) -> Leaf:
        """As one matrix: from each of these rows of the last dimension on so many. Raises: BadTensorFile."""
        rows = math.prod(self.shape[:-1])
        if not 0 < together <= rows or not all(0 <= begin <= rows - together for begin in begins):
            raise BadTensorFile("rows that it does not have")
        width = self.nbytes // rows
        data = np.concatenate([self.data[begin * width : (begin + together) * width] for begin in begins])
        return replace(self, shape=(len(begins) * together, self.shape[-1]), data=data, part_of=self.shape)

    @property
    def is_exact(self) -> bool:
        return self.dtype in _EXACT

    def exact(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Elements start to stop of the flat tensor, integers or booleans, as they are."""
        return self._elements(_EXACT[self.dtype], start, self.elements if stop is None else stop)

    def _elements(self, dtype: str, start: int, stop: int) -> NDArray[Any]:
        width = np.dtype(dtype).itemsize
        return self.data[start * width : stop * width].view(dtype)

    @property
    def row_length(self) -> int:
        """Elements in a row of the last dimension; complex numbers count as two."""
        last = self.shape[-1] if self.shape else 1
        return last * (2 if self.dtype.startswith("complex") else 1)

    def as_float(self, start: int, stop: int, wide: type = np.float64) -> NDArray[Any]:
        """Elements start to stop of the flat tensor, in float64 or float32; complex ones as pairs."""
        if self.dtype in _FLOAT:
            return self._elements(_FLOAT[self.dtype], start, stop).astype(wide, copy=False)
        if self.dtype == "bfloat16":
            bits = self._elements("<u2", start, stop).astype(np.uint32) << 16
            return bits.view(np.float32).astype(wide)
        if self.dtype.startswith("float8"):
            return _float8_table(self.dtype)[self.data[start:stop]].astype(wide)
        raise BadTensorFile(f"{self.dtype} is no floating-point dtype")

    @property
    def elements(self) -> int:
        """Numbers in the flat tensor; complex ones count as two."""
        count = int(np.prod(self.shape, dtype=np.int64)) if self.shape else 1
        return count * (2 if self.dtype.startswith("complex") else 1)


@dataclass(frozen=True)
class Saved:
    """The contents of a tensor file."""

    path: Path
    structure: dict[str, Any]
    leaves: tuple[Leaf, ...]

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.leaves)

    def some(self, rows: Rows) -> Saved:
        """With these rows alone of the tensors that have this shape."""
        leaves = [*self.leaves]
        for index, shape, begins, together in rows:
            if index < len(leaves) and leaves[index].shape == tuple(shape):
                leaves[index] = leaves[index].rows(begins, together)
        return replace(self, leaves=tuple(leaves))

    def head(self, most: int) -> Saved:
        """With the head of each tensor."""
        return replace(self, leaves=tuple(leaf.head(most) for leaf in self.leaves))

    @property
    def forms(self) -> list[tuple[str, tuple[int, ...]]]:
        """Dtype and shape of each tensor."""
        return [(leaf.dtype, leaf.shape) for leaf in self.leaves]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [leaf.shape for leaf in self.leaves]

    def named(self) -> dict[str, Leaf]:
        """Leaves by key, for a file that holds one flat dictionary, such as a state dict."""
        if self.structure.get("t") != "dict":
            raise BadTensorFile("not a dictionary")
        try:
            pairs = zip(self.structure["keys"], self.structure["items"], strict=True)
            return {str(key): self.leaves[node["i"]] for key, node in pairs if node.get("t") == "tensor"}
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise BadTensorFile("a dictionary that names tensors which are not there") from error


def read(path: Path) -> Saved:
    """What a worker saved. The path is in the worker's hands: what is no plain file there is not opened.

    Raises: BadTensorFile (also when nothing is there).
    """
    with opened(path) as file:
        header, start, _ = _checked_header(file)
        held = _Open(os.dup(file.fileno()))
    leaves = []
    for leaf in header["leaves"]:
        data = _InFile(held, start + leaf["offset"], leaf["nbytes"])
        leaves.append(
            Leaf(
                leaf["dtype"],
                tuple(leaf["shape"]),
                leaf["kind"],
                leaf["device"],
                data,
                leaf.get("grad") is True,
                leaf.get("borrowed", ""),
                leaf.get("keeps", 0),
                leaf.get("inference") is True,
                leaf.get("contiguous") is not False,
                leaf.get("spread") is True,
                tuple(leaf.get("whole", ())),
            )
        )
    return Saved(path, header["structure"], tuple(leaves))


def checked_length(file: BinaryIO) -> int:
    """How long a tensor file is, by its header and by the kernel. Raises: BadTensorFile."""
    return _checked_header(file)[2]


def _checked_header(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """(header, where the data starts, length of the file), of a file that is as long as its header says."""
    size = os.fstat(file.fileno()).st_size
    header, start = tensor_file.read_header(file, size)
    end = start
    for leaf in header["leaves"]:
        if start + leaf["offset"] < end:  # many leaves over the same bytes would take any time to read
            raise BadTensorFile("leaves that lie in each other")
        if leaf["offset"] > tensor_file.aligned(end - start):  # holes would make a file of any length of nothing
            raise BadTensorFile("leaves that lie apart")
        end = start + leaf["offset"] + leaf["nbytes"]
    if size > start + tensor_file.aligned(end - start):
        raise BadTensorFile(f"a file of {size} bytes whose header speaks of {end}")
    return header, start, size


def opened(path: Path) -> BinaryIO:
    """A plain file of a worker, to read. Raises: BadTensorFile."""
    with Folder(path.parent) as folder:
        return folder.opened(path.name)


class Folder:
    """A folder of a worker, which may put a link in its place: held open, so that it stays the same one."""

    def __init__(self, path: Path) -> None:
        """Raises: BadTensorFile when it is a link, or nothing that can be opened."""
        try:
            self._descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _not_opened(error) from error

    def opened(self, name: str) -> BinaryIO:
        """A plain file in it, to read. Raises: BadTensorFile."""
        try:
            # not through a link, and without waiting for the other end of a pipe
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
        except OSError as error:
            raise _not_opened(error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise BadTensorFile("no plain file")
        return os.fdopen(descriptor, "rb")

    def remove(self, name: str) -> None:
        """Raises: OSError."""
        os.unlink(name, dir_fd=self._descriptor)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _not_opened(error: OSError) -> BadTensorFile:
    """Raises: OSError when no worker can have caused it."""
    if disk.is_of_the_machine(error):
        raise error
    return BadTensorFile(f"nothing that can be read ({error.strerror})")


def _float8_table(dtype: str) -> NDArray[np.float64]:
    """The 256 values of an 8-bit format. Source: OCP 8-bit floating point (fn, e5m2) and the FNUZ variants."""
    exponent_bits, mantissa_bits = (4, 3) if "e4m3" in dtype else (5, 2)
    bias = (1 << (exponent_bits - 1)) - (0 if dtype.endswith("fnuz") else 1)
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    value = np.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias)) * sign
    if dtype.endswith("fnuz"):
        value[0x80] = np.nan
    elif dtype == "float8_e4m3fn":
        value[[0x7F, 0xFF]] = np.nan
    else:
        value[[0x7C, 0xFC]] = [np.inf, -np.inf]
        value[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return value
