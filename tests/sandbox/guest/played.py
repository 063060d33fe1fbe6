"""A script as the referee has it, in this process: what it is told of it, and its calls made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests import guest
from tests.files import write_files

NET = """
import argparse, dataclasses, sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, pos=None):
        return self.layer(x) if pos is None else self.layer(x) + pos

"""


class Played:
    """Described by a reference worker, built and called by another."""

    def __init__(self, folder: Path, script: str) -> None:
        self.folder = write_files(folder, {"bench.py": NET + script})
        self.reference = guest.module("reference").Reference(str(self.folder), "bench.py")
        self.told = self.reference.op_describe()
        self.worker = guest.module("worker").Worker(str(self.folder), "bench.py")

    @property
    def label(self) -> str:
        (case,) = self.told["cases"]
        return str(case["phase"])

    def build(self) -> torch.nn.Module:
        self.worker.op_build(recipe=self.told["recipe"])
        return self.worker.built

    def replayed(self, seed: int = 1) -> Any:
        """(the module, its arguments, what came out) of the only case."""
        return self.build(), *self.call(seed)

    def call(self, seed: int) -> Any:
        """(arguments, what came out) of one call of the only case."""
        path = str(self.folder / f"input-{seed}")
        self.reference.op_draw({path: seed}, phase=self.label)
        self.worker.op_stage(path, phase=self.label, constants=self.told["constants"])
        self.worker.op_call(key=1)
        structure, flat = self.worker.result
        return dict(self.worker.arguments), guest.module("tensors").unflatten(structure, flat)
