"""Workers of a small entry, scripts as the referee has them and models that are observed, in this process."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest
from tests.files import write_files
from tests.observed import Target
from tools.observation import Observation

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
    """A script as the referee has it: described by a reference worker, built and called by another."""

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


Play = Callable[[str], Played]
Observe = Callable[..., Observation]


@pytest.fixture(autouse=True)
def grad_mode() -> Iterator[None]:
    """A worker sets that of its process, which here is the tests'."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        yield


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Plays a script, which follows `NET`."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "finished", False, raising=False)
    numbers = itertools.count()
    return lambda script: Played(tmp_path / f"script-{next(numbers)}", script)


@pytest.fixture
def observe(tmp_path: Path) -> Observe:
    """What is seen of a model with these lines in `forward` and `__init__`, and `before` above its class."""
    numbers = itertools.count()

    def observe(body: str, init: str = "", before: str = "") -> Observation:
        init = f"self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)\n{init}"
        told = Target.of_forward(tmp_path / f"model-{next(numbers)}", body, init, before=before).told()
        written = json.dumps(told)
        assert len(written) < 1 << 20 and all(len(rows) <= 200 for rows in told.values() if isinstance(rows, list))
        return Observation.model_validate(json.loads(written))

    return observe


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Any]:
    """Makes a worker, or one in another role, of an entry; `called` hands its callable some arguments."""
    numbers = itertools.count()

    def make(entry: str = "", role: str = "worker") -> Any:
        tree = write_files(tmp_path / f"tree-{next(numbers)}", {"bench.py": entry})
        return guest.module("serve").role_class(role)(str(tree), "bench.py")

    return make


@pytest.fixture
def called(tmp_path: Path) -> Callable[..., Any]:
    """A worker is built, given these arguments and called."""

    def call(worker: Any, *arguments: Any, mode: str = "inference", constants: Any = ()) -> Any:
        worker.op_build(mode)
        guest.module("tensors").save(str(tmp_path / "in"), arguments)
        worker.op_stage(str(tmp_path / "in"), constants=constants)
        worker.op_call(1)
        return worker

    return call
