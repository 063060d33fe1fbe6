"""Read tensor files on the host: raw bytes and a bounded header, no torch, no pickle, no code of the target."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sandbox.guest import tensor_file
from sandbox.guest.tensor_file import BadTensorFile

__all__ = ["BadTensorFile", "Leaf", "Saved", "read", "write"]

_EXACT = {"bool": "?", "uint8": "u1", "int8": "i1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
          "int64": "<i8", "uint64": "<u8"}  # fmt: skip
_FLOAT = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<f4", "complex128": "<f8"}


@dataclass(frozen=True)
class Leaf:
    """One tensor: its header entry and its bytes, mapped from the file and not read until used."""

    dtype: str
    shape: tuple[int, ...]
    kind: str  # the class it had in the worker: "Tensor", "Parameter", …
    device: str
    raw: NDArray[np.uint8]
    grad: bool = False  # whether a gradient would flow back from it
    borrowed: str = ""  # which argument it shares memory with

    @property
    def is_exact(self) -> bool:
        return self.dtype in _EXACT

    def exact(self) -> NDArray[Any]:
        """Integers and booleans as they are."""
        return self.raw.view(_EXACT[self.dtype])

    @property
    def row_length(self) -> int:
        """Elements in a row of the last dimension; complex numbers count as two."""
        last = self.shape[-1] if self.shape else 1
        return last * (2 if self.dtype.startswith("complex") else 1)

    def as_float(self, start: int, stop: int, wide: type = np.float64) -> NDArray[Any]:
        """Elements start to stop of the flat tensor, in float64 or float32; complex ones as pairs."""
        if self.dtype in _FLOAT:
            return self.raw.view(_FLOAT[self.dtype])[start:stop].astype(wide)
        if self.dtype == "bfloat16":
            bits = self.raw.view("<u2")[start:stop].astype(np.uint32) << 16
            return bits.view(np.float32).astype(wide)
        if self.dtype.startswith("float8"):
            return _float8_table(self.dtype)[self.raw[start:stop]].astype(wide)
        raise BadTensorFile(f"{self.dtype} is no floating-point dtype")

    @property
    def elements(self) -> int:
        """Floating-point numbers in the flat tensor."""
        count = int(np.prod(self.shape, dtype=np.int64)) if self.shape else 1
        return count * (2 if self.dtype.startswith("complex") else 1)


@dataclass(frozen=True)
class Saved:
    """The contents of a tensor file."""

    path: Path
    structure: dict[str, Any]
    leaves: tuple[Leaf, ...]

    @cached_property
    def nbytes(self) -> int:
        return sum(leaf.raw.size for leaf in self.leaves)

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
        header, start = tensor_file.read_header(file, os.fstat(file.fileno()).st_size)
        data = np.memmap(file, dtype=np.uint8, mode="r")
    leaves = []
    for leaf in header["leaves"]:
        begin = start + leaf["offset"]
        raw = np.asarray(data[begin : begin + leaf["nbytes"]])
        leaves.append(Leaf(leaf["dtype"], tuple(leaf["shape"]), leaf["kind"], leaf["device"], raw,
                           leaf.get("grad") is True, leaf.get("borrowed", "")))  # fmt: skip
    return Saved(path, header["structure"], tuple(leaves))


def opened(path: Path) -> BinaryIO:
    """A plain file of a worker, to read. Raises: BadTensorFile."""
    try:
        # not through a link, and without waiting for the other end of a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadTensorFile(f"nothing that can be read ({error.strerror})") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadTensorFile("no plain file")
    return os.fdopen(descriptor, "rb")


def write(path: Path, like: Saved, raws: list[NDArray[np.uint8]]) -> None:
    """A file with the structure, dtypes and shapes of `like` and other bytes (for self-tests of a problem)."""
    leaves: list[dict[str, Any]] = []
    offset = 0
    for leaf, raw in zip(like.leaves, raws, strict=True):
        leaves.append({"dtype": leaf.dtype, "shape": list(leaf.shape), "offset": offset, "nbytes": int(raw.size),
                       "device": leaf.device, "kind": leaf.kind, "stride": None})  # fmt: skip
        offset = tensor_file.aligned(offset + int(raw.size))
    with path.open("wb") as file:
        tensor_file.write_header(file, {"structure": like.structure, "leaves": leaves})
        start = file.tell()
        for entry, raw in zip(leaves, raws, strict=True):
            file.seek(start + entry["offset"])
            file.write(raw.tobytes())
        file.truncate(start + offset)


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
