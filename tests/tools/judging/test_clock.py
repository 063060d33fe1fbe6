"""How a restart goes: nobody can foresee which timed calls are looked at; who has no room beside others runs alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tools.judging.clock import SAMPLES, Plan, Restart, Session, Side
from tools.judging.workload import Case


class TwoNames:
    """As much of a workload and of a session as choosing calls needs."""

    device = "cpu"
    cases = (Case("", {}, call_s=0.01),)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """For each of 300 restarts, the block and the call that were looked at."""
    restarts: list[list[tuple[int, int]]] = []
    blocks: list[tuple[str, int | None]] = []

    def block(self: Session, case: int, calls: int, pair: Any, name: str, side: Side, keep: int | None) -> None:
        blocks.append((name, keep))

    monkeypatch.setattr(Session, "_block", block)
    unused: Any = None
    session = Session(unused, unused, {}, unused, unused)
    session.workload = TwoNames()  # type: ignore[assignment]
    for _ in range(300):
        blocks.clear()
        session._time_case(0, {"incumbent": unused, "candidate": unused}, {"incumbent": Side(), "candidate": Side()})
        assert all(keep is None for name, keep in blocks if name == "incumbent")
        of_candidate = [keep for name, keep in blocks if name == "candidate"]
        restarts.append([(block, keep) for block, keep in enumerate(of_candidate) if keep is not None])
    return restarts


def test_their_number_varies_so_that_none_is_the_last(sampled: list[list[tuple[int, int]]]) -> None:
    counts = [len(calls) for calls in sampled]
    assert len(set(counts)) > 3
    assert SAMPLES / 2 < sum(counts) / len(counts) < SAMPLES * 2


def test_every_block_and_every_call_may_be_looked_at(sampled: list[list[tuple[int, int]]]) -> None:
    plan = Plan.for_call(TwoNames.cases[0].call_s, TwoNames.device)
    blocks, calls = zip(*(call for restart in sampled for call in restart), strict=True)
    assert set(blocks) == set(range(plan.rounds))
    assert set(calls) == set(range(plan.calls))


def test_workers_run_one_after_the_other_where_the_device_has_no_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(self: Session, names: list[str], sides: dict[str, Side], tripped: dict[str, set[str]]) -> None:
        ran.append(list(names))
        tripped.update({name: set() for name in names})

    monkeypatch.setattr(Session, "_run", run)
    unused: Any = None
    builds = {"incumbent": unused, "candidate": unused}
    Session(unused, unused, builds, unused, unused).restart()
    Session(unused, unused, builds, unused, unused, turns=True).restart()
    assert ran[0] == ["incumbent", "candidate"]
    assert sorted(ran[1:]) == [["candidate"], ["incumbent"]]


def test_all_timed_calls_together_count_with_what_their_staging_takes_longer() -> None:
    def total(candidate: Side) -> float:
        sides = {"incumbent": Side({0: [100] * 8}, {0: [100] * 8}), "side": candidate}
        (found,) = Restart(sides, 1.0).total_log_ratios("side")
        return found

    assert total(Side({0: [80] * 8}, {0: [100] * 8})) == pytest.approx(math.log(1.25))
    moved = Side({0: [80] * 8}, {0: [100] * 6 + [180] * 2})  # where a median does not see it
    assert total(moved) == pytest.approx(math.log(800 / (640 + 960 - 1.03 * 800)))
    assert total(Side({0: [100] * 8}, {0: [10] * 8})) == 0.0
