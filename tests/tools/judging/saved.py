"""Tensor files as a worker saves them, whatever they hold."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

VALUES = bytes(range(16))
TENSOR = {"t": "tensor", "i": 0}


def leaf(count: int = 4, **changes: Any) -> dict[str, Any]:
    """The entry of a float32 tensor in a header."""
    named = {"dtype": "float32", "device": "cpu", "kind": "Tensor", "stride": None}
    return {**named, "shape": [count], "offset": 0, "nbytes": 4 * count, **changes}


def written(path: Path, header: object, data: bytes = VALUES) -> Path:
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def saved(path: Path, count: int = 4, values: bytes = VALUES, **changes: Any) -> Path:
    """One tensor, with a header that says so whatever the file holds."""
    return written(path, {"structure": TENSOR, "leaves": [leaf(count, **changes)]}, values)
