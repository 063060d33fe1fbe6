"""What a worker says of what torch.compile made in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.utils as dynamo

from tests import guest


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "bench.py").write_text("")
    torch._dynamo.reset()
    dynamo.counters.clear()
    dynamo.clear_compilation_metrics()
    yield guest.module("worker").Worker(str(tmp_path), "bench.py")
    torch._dynamo.reset()


def test_nothing_was_compiled(worker: Any) -> None:
    nothing: list[str] = []
    assert worker.op_compiled() == {
        "graphs": 0,
        "graph_breaks": 0,
        "reasons": nothing,
        "recompiles": 0,
        "recompile_reasons": nothing,
    }


def test_it_counts_graphs_breaks_and_what_was_compiled_again(worker: Any) -> None:
    @torch.compile(backend="eager")
    def broken(x: torch.Tensor, number: float) -> torch.Tensor:
        x = x * number
        torch._dynamo.graph_break()
        return x + 1

    broken(torch.ones(3), 1)
    once = worker.op_compiled()
    assert (once["graphs"], once["graph_breaks"], once["recompiles"]) == (2, 1, 0) and once["reasons"]
    broken(torch.ones(3, dtype=torch.float64), 1)
    twice = worker.op_compiled()
    assert twice["graphs"] == 4 and twice["recompiles"] == 2
    assert all("\n" not in reason for reason in twice["recompile_reasons"])
    assert "dtype" in twice["recompile_reasons"][0]
