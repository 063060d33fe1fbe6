"""Tensor files as a worker saves them, whatever they hold."""

from __future__ import annotations

from pathlib import Path

from sandbox.guest import tensor_file

VALUES = bytes(range(16))


def saved(path: Path, count: int = 4, values: bytes = VALUES) -> Path:
    """A tensor file as a worker writes it: float32, a header that is true whatever the file holds."""
    leaf = {
        "dtype": "float32",
        "shape": [count],
        "offset": 0,
        "nbytes": 4 * count,
        "device": "cpu",
        "kind": "Tensor",
        "stride": None,
    }
    with path.open("wb") as file:
        tensor_file.write_header(file, {"structure": {"t": "tensor", "i": 0}, "leaves": [leaf]})
        file.write(values)
    return path
