"""The arena for the red team: opened once, with short plans for every test that enters it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.evals.arena import Arena
from tests.files import folder_open_to_all
from tools.judging import accept, agreement, clock, long_use, measure, plan, referee


@pytest.fixture(scope="session")
def open_arena() -> Iterator[Arena]:
    with folder_open_to_all() as folder:
        arena = Arena.open(folder, sys.executable)
        yield arena
        arena.referee.close()


@pytest.fixture(scope="session")
def open_long_arena() -> Iterator[Arena]:
    with folder_open_to_all() as folder:
        arena = Arena.open(folder, sys.executable, rows=256)
        yield arena
        arena.referee.close()


@pytest.fixture
def short_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """One restart, prepared by itself, of a few short blocks; no second look at a large gain, nor at long use, which
    would be a guard more in each test (`tests/tools/judging/test_long_use.py`).
    """
    monkeypatch.setattr(long_use, "speaks_against", lambda found: None)
    monkeypatch.setattr(long_use, "CALLS", 0)
    monkeypatch.setattr(accept, "LOOKS", {1: 1})
    monkeypatch.setattr(measure, "AHEAD", ())
    monkeypatch.setitem(plan.TURNS, "cpu", plan.Turns(block_s=0.07, calls=12, rounds=4, fewest=4, all_s=0.0))
    monkeypatch.setattr(clock, "SAMPLES", 4)
    monkeypatch.setattr(referee, "QUARANTINE", float("inf"))
    monkeypatch.setattr(agreement, "AGREEMENT", 2.0)
    monkeypatch.setattr(agreement, "TURNS", 1)


@pytest.fixture
def arena(open_arena: Arena, short_plans: None) -> Arena:
    """The arena as it was opened: what the clock learnt from other tests is forgotten."""
    return open_arena.with_setting()


@pytest.fixture
def long_arena(open_long_arena: Arena, short_plans: None) -> Arena:
    """Calls longer than the slices in which the kernel shares out a core, so that a neighbour on it is felt."""
    return open_long_arena.with_setting()
