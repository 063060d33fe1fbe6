"""Results as a worker saves them, and files that hold anything else."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests import guest
from tools.judging import tensors

VALUES = bytes(range(16))
TENSOR = {"t": "tensor", "i": 0}


@pytest.fixture
def path(tmp_path: Path) -> Any:
    """Saves a value, and answers with its file."""

    def save(value: Any) -> Path:
        into = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        guest.module("tensors").save(str(into), value)
        return into

    return save


@pytest.fixture
def saved(path: Any) -> Any:
    """Saves a value, and reads it as the host does."""
    return lambda value: tensors.read(path(value))


def leaf(count: int = 4, **changes: Any) -> dict[str, Any]:
    """The entry of a float32 tensor in a header."""
    named = {"dtype": "float32", "device": "cpu", "kind": "Tensor", "stride": None}
    return {**named, "shape": [count], "offset": 0, "nbytes": 4 * count, **changes}


def written(path: Path, header: object, data: bytes = VALUES) -> Path:
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def one_tensor(path: Path, count: int = 4, values: bytes = VALUES, **changes: Any) -> Path:
    """One tensor, with a header that says so whatever the file holds."""
    return written(path, {"structure": TENSOR, "leaves": [leaf(count, **changes)]}, values)
