"""The file format for tensors: a bounded JSON header, then raw little-endian bytes. Never pickle.

Standard library only, because the host reads these files too, and the host has no torch.

    8 bytes   length of the header, little-endian
    header    {"structure": node, "leaves": [{"dtype", "shape", "offset", "nbytes", "device", "kind", "stride", "grad",
              "borrowed", "keeps", "inference", "spread", "contiguous", "whole"}]}; the last seven may be left out,
              "keeps" are the bytes that live as long as it does, "whole" is the shape of what this is rows of
    data      leaves at multiples of ALIGN from the start of the data

A node is one of {"t": "tensor", "i": 0}, {"t": "tuple"|"list", "items": [node]}, {"t": "dict", "keys", "items"},
{"t": "object", "class": "module:qualname", "keys", "items"}, {"t": "value", "v": scalar}, {"t": "opaque", "class"},
{"t": "class", "class"}, {"t": "member", "class", "v": name} of an enumeration, {"t": "pairs", "class", "items"} for a
dictionary by tuples of a key and a value, {"t": "sequence", "class", "items"} for a list or tuple of its own class, and
{"t", "items"} for the kinds "size", "slice", "range", "complex", "device", "numpy" (a number: the name of its type, its
value), "texts" (an array: its type, the texts) and "torch" (a dtype or the like: its name).
{"t": "sealed", "v": hexadecimal digits} stands for all of them where the data is sealed too (`seal.py`).
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, BinaryIO

MAX_HEADER = 8 << 20
MAX_NAME = 200
MAX_DIMENSIONS = 64
ALIGN = 64
_LENGTH = struct.Struct("<Q")

# bytes of one element; the names are torch's
_BY_SIZE = {
    1: "bool uint8 int8 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz",
    2: "int16 uint16 float16 bfloat16",
    4: "int32 uint32 float32",
    8: "int64 uint64 float64 complex64",
    16: "complex128",
}
ITEM_BYTES = {name: size for size, names in _BY_SIZE.items() for name in names.split()}


class BadTensorFile(Exception):
    """The file is not what the format says; written by a broken or hostile worker."""


def aligned(offset: int) -> int:
    return (offset + ALIGN - 1) // ALIGN * ALIGN


def write_header(file: BinaryIO, header: dict[str, Any]) -> None:
    data = json.dumps(header, separators=(",", ":")).encode()
    data += b" " * (aligned(_LENGTH.size + len(data)) - _LENGTH.size - len(data))
    file.write(_LENGTH.pack(len(data)) + data)


def read_header(file: BinaryIO, file_bytes: int) -> tuple[dict[str, Any], int]:
    """The header and the position of the data. Raises: BadTensorFile."""
    raw = file.read(_LENGTH.size)
    if len(raw) != _LENGTH.size:
        raise BadTensorFile("too short for a header")
    (size,) = _LENGTH.unpack(raw)
    if size > MAX_HEADER or _LENGTH.size + size > file_bytes:
        raise BadTensorFile(f"a header of {size} bytes in a file of {file_bytes}")
    try:
        header = json.loads(file.read(size))
        for leaf in header["leaves"]:
            _check_leaf(leaf, file_bytes - _LENGTH.size - size)
        structure = header["structure"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadTensorFile(f"a header that does not hold what it must ({type(error).__name__})") from error
    if not isinstance(structure, dict):
        raise BadTensorFile("the structure is no node")
    return header, _LENGTH.size + size


def _check_leaf(leaf: dict[str, Any], data_bytes: int) -> None:
    shape, stride, offset, nbytes = leaf["shape"], leaf["stride"], leaf["offset"], leaf["nbytes"]
    if (
        not _are_sizes(shape)
        or not _are_sizes(leaf.get("whole", []))
        or not _are_sizes([offset, nbytes, leaf.get("keeps", 0)])
    ):
        raise BadTensorFile("a shape, an offset or a length that is none")
    if leaf["dtype"] not in ITEM_BYTES:
        raise BadTensorFile("a dtype nobody knows")
    if nbytes != math.prod(shape) * ITEM_BYTES[leaf["dtype"]]:
        raise BadTensorFile("the number of bytes does not match shape and dtype")
    if offset > data_bytes - nbytes:
        raise BadTensorFile("a leaf lies outside the file")
    if stride is not None and not (_are_sizes(stride) and _is_dense(shape, stride)):
        raise BadTensorFile("strides that would need more memory than the tensor has")
    for name in (leaf["device"], leaf["kind"], leaf.get("borrowed", "")):
        if not isinstance(name, str) or len(name) > MAX_NAME or not name.isprintable():
            raise BadTensorFile("a device or a class that is no name")


def _are_sizes(values: object) -> bool:
    if not isinstance(values, list) or len(values) > MAX_DIMENSIONS:
        return False
    return all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _is_dense(shape: list[int], stride: list[int]) -> bool:
    furthest = sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True))
    return 0 in shape or furthest + 1 == math.prod(shape)
