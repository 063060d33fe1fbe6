"""A script as the referee has it, in this process: what it is told of it, and its calls made again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest
from tests.files import write_files


@pytest.fixture(autouse=True)
def as_a_worker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "finished", False, raising=False)


class Played:
    """A script as the referee has it: described by a reference worker, built and called by another."""

    def __init__(self, folder: Path, script: str) -> None:
        self.folder = write_files(folder / "tree", {"bench.py": script})
        self.reference = guest.module("reference").Reference(str(self.folder), "bench.py")
        self.told = self.reference.op_describe()
        self.worker = guest.module("worker").Worker(str(self.folder), "bench.py")

    @property
    def labels(self) -> list[str]:
        return [case["phase"] for case in self.told["cases"]]

    def drawn(self, label: str, seed: int) -> Path:
        path = self.folder / f"input-{seed}"
        self.reference.op_draw({str(path): seed}, phase=label)
        return path

    def build(self) -> torch.nn.Module:
        self.worker.op_build(recipe=self.told["recipe"])
        return self.worker.built

    def replayed(self, seed: int = 1) -> Any:
        """(the module, its arguments, what came out) of the only case."""
        (label,) = self.labels
        return self.build(), *self.call(label, seed)

    def call(self, label: str, seed: int) -> Any:
        """(arguments, what came out) of one call."""
        self.worker.op_stage(str(self.drawn(label, seed)), phase=label, constants=self.told["constants"])
        self.worker.op_call(key=1)
        structure, flat = self.worker.result
        return dict(self.worker.arguments), guest.module("tensors").unflatten(structure, flat)
