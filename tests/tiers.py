"""How long the tests of each tier take, by a committed file of durations rather than by the clock of the run at hand.

`make test` is the quick tier: what is not marked `slow` or `gpu`. Two workers share its tests, but for those that are
marked `alone`, which follow one by one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
LEAST_S = 0.2  # what takes less is not recorded by itself
DEFAULT_S = 0.03  # of a test without a record: the mean of those that take less
WORKERS = 2
# Ten minutes for `make test`. By this sum it is longer: recorded while all of them ran, tests of 725 s took 590.
BUDGET_S = 600.0 * 725 / 590


@dataclass(frozen=True)
class Tiered:
    id: str
    alone: bool
    slow: bool
    gpu: bool

    @classmethod
    def of(cls, item: pytest.Item) -> Tiered:
        marks = {mark.name for mark in item.iter_markers()}
        return cls(item.nodeid, *(name in marks for name in ("alone", "slow", "gpu")))

    @property
    def quick(self) -> bool:
        return not self.slow and not self.gpu


def recorded() -> dict[str, float]:
    """Seconds by the test's id, fixtures that were made for it included."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def record(seconds: Mapping[str, float]) -> None:
    """Keep what these tests took; of tests that did not run what there was stays, as long as their file is there."""
    root = DURATIONS.parent.parent
    kept = {name: old for name, old in recorded().items() if (root / name.partition("::")[0]).exists()}
    merged = {name: round(took, 1) for name, took in {**kept, **seconds}.items() if took >= LEAST_S}
    DURATIONS.write_text(json.dumps(dict(sorted(merged.items())), indent=0) + "\n")


def expected_s(tests: Iterable[Tiered]) -> float:
    """How long these take: those that run `alone` one by one, the others shared out among the workers."""
    known = recorded()
    sums: dict[bool, float] = defaultdict(float)
    for test in tests:
        sums[test.alone] += known.get(test.id, DEFAULT_S)
    return sums[True] + sums[False] / WORKERS
