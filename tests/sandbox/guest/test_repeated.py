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


@pytest.mark.parametrize(
    ("module", "role", "ask", "given"),
    [
        ("observe", "Observer", "op_observe", [3]),
        ("profiler", "Profiler", "op_profile", [3, "trace.json"]),
        ("profiler", "Profiler", "op_repeat", [3]),
        ("tune", "Tuner", "op_tune", []),
    ],
)
def test_each_call_begins_with_what_the_first_one_had(
    module: str, role: str, ask: str, given: list[Any], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(target.tree)
    with target._imported():
        worker = getattr(guest.module(module), role)(str(target.tree), "bench.py")
        worker.op_build()
        getattr(worker, ask)(target._draw(worker, ({},)), *given)
        assert set(worker.workload.module.LENGTHS) == {0}  # what they found in the cache


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
