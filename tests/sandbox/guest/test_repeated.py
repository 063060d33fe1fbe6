"""Whoever calls a case again and again begins each call with what the first one had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import guest
from tests.observed import Target

# a cache with room for one call: the next one without a reset fails, and with padding left out finds it begun
ENTRY = """
import torch

LENGTHS = []

class Cached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.cache, self.used = torch.zeros(3, 4), 0

    def forward(self, x, mask):
        LENGTHS.append(self.used)
        self.cache[self.used : self.used + len(x[0])] = self.layer(x[0])
        self.used += len(x[0])
        return self.cache.sum()

MODEL = Cached()

def build():
    return MODEL

def reset():
    MODEL.used = 0
    MODEL.cache.zero_()

def inputs(seed):
    return torch.cat([torch.randn(1, 2, 4), torch.zeros(1, 1, 4)], 1), torch.tensor([[1, 1, 0]])
"""


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target.write(tmp_path / "tree", {"bench.py": ENTRY})


def lengths(target: Target, module: str, role: str, ask: Any) -> set[int]:
    """What calls found in the cache when they began."""
    with target._imported():
        worker = getattr(guest.module(module), role)(str(target.tree), "bench.py")
        worker.op_build()
        ask(worker, target._draw(worker, ({},)))
        return set(worker.workload.module.LENGTHS)


def test_observed_calls_begin_again(target: Target) -> None:
    assert lengths(target, "observe", "Observer", lambda worker, cases: worker.op_observe(cases, calls=3)) == {0}


def test_profiled_calls_begin_again(target: Target, tmp_path: Path) -> None:
    def profile(worker: Any, cases: Any) -> None:
        assert len(worker.op_profile(cases, 3, str(tmp_path / "trace.json"))["call_us"]) == 1

    assert lengths(target, "profiler", "Profiler", profile) == {0}
    assert lengths(target, "profiler", "Profiler", lambda worker, cases: worker.op_repeat(cases, 3)) == {0}


def test_tuned_calls_begin_again(target: Target) -> None:
    assert lengths(target, "tune", "Tuner", lambda worker, cases: worker.op_tune(cases)) == {0}


def test_a_reset_is_not_in_the_time_of_a_call(target: Target) -> None:
    order = list[str]()
    with target._imported():
        worker = guest.module("repeated").Repeating(str(target.tree), "bench.py")
        worker.op_build()
        worker._stage(target._draw(worker, ({},))[0])
        worker.workload.module.reset = lambda: order.append("reset")
        clock = guest.module("repeated").time
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock, "perf_counter", lambda: order.append("clock") or float(len(order)))
            worker._time(2, lambda: order.append("run"))
    assert order == ["reset", "clock", "run", "clock"] * 2
