"""The worker's own part of a call is gone through before the clock starts, where it is short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest

BENCH = """
import torch

def build():
    return lambda x: (x + 1, x * 2)

def inputs(seed):
    return (torch.full((4,), float(seed)),)
"""
ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors each digest was made of that the worker asked for."""
    made: list[int] = []
    worker = guest.module("worker")

    class Noted(worker.Digest):  # type: ignore[misc,name-defined]
        def __init__(self, tensors: Any, key: int) -> None:
            made.append(len(tensors))
            super().__init__(tensors, key)

    monkeypatch.setattr(worker, "Digest", Noted)
    return made


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_it_is_gone_through_once_before_a_call_whose_outputs_are_small_and_on_a_device(
    tmp_path: Path, digests: list[int], device: str
) -> None:
    (tmp_path / "bench.py").write_text(BENCH)
    worker = guest.module("worker").Worker(str(tmp_path), "bench.py")
    worker.op_build()
    worker.phase, worker.arguments = "", (torch.full((4,), 3.0, device=device),)
    said = []
    for _ in range(2):
        worker._rehearse()
        said.append(worker.op_call(key=7)["digest"])
    assert said[0] == said[1], "what was gone through before leaves no trace in the digest"
    assert digests == ([0, 2, 2] if device == "cpu" else [0, 2, 2, 2]), "before the first call there is nothing yet"


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_large_outputs_are_not_gone_through(tmp_path: Path, digests: list[int], device: str) -> None:
    (tmp_path / "bench.py").write_text(BENCH)
    worker = guest.module("worker").Worker(str(tmp_path), "bench.py")
    worker.result = (None, [torch.ones(5000, device=device), torch.ones(1, device=device)])
    worker._rehearse()
    assert not digests
