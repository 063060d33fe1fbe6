"""What is quick call by call and slow, or hungry, in long use is no gain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.evals.arena import noise
from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging import long_use
from tools.judging.comparison import Comparison
from tools.judging.referee import Referee
from tools.judging.script import Case
from tools.judging.worker import Build

ENTRY = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.pending = torch.nn.Linear(64, 64), []
        self.register_buffer("seen", torch.zeros(64, 64))

    def forward(self, x):
        %s

    def count(self, x):
        for part in x.split(4):
            self.seen.mul_(0.99).add_(part.t() @ part)

def build():
    torch.manual_seed(0)
    return Model().eval()

def shapes():
    return [{"rows": 200}]

def inputs(seed, rows=200):
    return (torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed)),)
"""
PLAIN = """
        for part in x.split(4):
            self.layer(part)
        return self.layer(x)
"""
QUICK = "return self.layer(x)"
HUNGRY = "self.pending.append(x.clone())\n        return self.layer(x)"
ONE_SHAPE = """
        if len(x) != 200:
            [self.layer(row) for row in x.repeat(8, 1).split(1)]
        return self.layer(x)
"""
PUT_OFF = """
        self.pending.append(x)
        if len(self.pending) == 260:  # more calls than a restart has before
            for _ in range(260):
                [self.layer(part) for part in x.split(4)]
            self.pending.clear()
        return self.layer(x)
"""


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    with opened(tmp_path_factory.mktemp("long"), {"bench.py": ENTRY % PLAIN}) as found:
        found.noise = noise(0.1)
        yield found


@pytest.mark.alone
@pytest.mark.parametrize(
    ("body", "verdict", "says"),
    [
        (QUICK, "kept", ""),
        pytest.param(HUNGRY, "broken", "KiB a call", marks=pytest.mark.slow),
        pytest.param(ONE_SHAPE, "slower", "for another size", marks=pytest.mark.slow),
        pytest.param(PUT_OFF, "neutral", "in a row are not", marks=pytest.mark.slow),
    ],
    ids=["quick", "hungry", "one shape", "put off"],
)
def test_a_gain_must_hold_in_long_use(referee: Referee, tmp_path: Path, body: str, verdict: str, says: str) -> None:
    changed = Build(tmp_path.name, write_files(tmp_path / "changed", {"bench.py": ENTRY % body}))
    found, _ = referee.judge(changed, referee.pristine)
    assert found.name == verdict and says in found.reason, (found.reason, found.evidence)
    seen = found.evidence["comparison"]["long_use"]
    assert seen["calls"] == long_use.CALLS
    blocks = len(seen["log_ratios"])  # one serves, unless it is slow by chance
    assert 1 <= blocks <= long_use.BLOCKS if verdict == "kept" else blocks == long_use.BLOCKS
    assert seen["costs"]["start_cpu_s"][1] > 0 and long_use.SLACK_BYTES > seen["costs"]["host_bytes"][1] > 50 << 20


def test_a_change_may_not_take_many_times_the_memory() -> None:
    def found(gib: float) -> Comparison:
        costs = [{"host_bytes": (2.0**30, 2.0**29), "device_bytes": (2.0**30, gib * 2**30)}]
        return Comparison(purpose="x", incumbent="a", candidate="b", size_ratios=[{}], costs=costs)

    assert long_use.speaks_against(found(3.9)) is None
    told = "it takes 4.1 GiB of device memory, and 1.0 without it"
    assert long_use.speaks_against(found(4.1)) == ("broken", told)


@pytest.mark.parametrize(
    ("ratio", "blocks", "doubtful"), [(1.0, 1, False), (3.0, 1, True), (3.0, long_use.BLOCKS, False)]
)
def test_one_look_serves_unless_it_speaks_against_a_change(ratio: float, blocks: int, doubtful: bool) -> None:
    found = Comparison(purpose="x", incumbent="a", candidate="b", size_ratios=[{"size": ratio}] * blocks)
    assert long_use.is_doubtful(found) is doubtful


def test_what_was_not_looked_at_speaks_against_nothing() -> None:
    found = Comparison(purpose="x", incumbent="a", candidate="b", case_log_ratios=[[0.5]])
    assert long_use.speaks_against(found) is None and not long_use.is_doubtful(found) and not long_use.told(found)


@pytest.mark.parametrize(
    ("call_s", "took", "shortest", "calls"),
    [
        (0.2, [200, 200], 200, 2),
        (0.2, [200, 900, 20], 20, 3),  # the second call records the next
        (0.2, [200, 900, 900, 900], 900, 4),
        (0.2, [900, 200], 200, 2),
        (0.002, [2, 2, 2, 1], 1, 4),
    ],
)
def test_of_slow_calls_of_another_size_few_are_made_where_they_settle(
    call_s: float, took: list[int], shortest: int, calls: int
) -> None:
    given = iter(took)
    worker: Any = SimpleNamespace(
        reveal=str, ask=lambda *_, **__: {}, took_ns=lambda *_, **__: next(given), process=SimpleNamespace()
    )
    worker.process.usage = lambda: SimpleNamespace(tasks=())
    workload: Any = SimpleNamespace(cases=[Case("", {}, call_s=call_s)], constants=(), device="cpu")
    found = long_use.LongUse()
    long_use.look(found, worker, workload, [long_use.OtherSize("rows=3", "", Path("x"))], lambda: 1)
    assert found.sizes_ns == {"rows=3": shortest} and len(took) == calls and not [*given]
