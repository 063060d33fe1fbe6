"""Workers of a small entry, in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest
from tests.files import write_files


@pytest.fixture(autouse=True)
def grad_mode() -> Iterator[None]:
    """A worker sets that of its process, which here is the tests'."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        yield


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
