"""Cheats that look faster than they are: none is kept, and each is kept where its guard is gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import ANY

import pytest

from tests.evals.arena import Arena, gains_nothing, kept, nothing_found, only_medians_count, staging_counts_nowhere
from tools.judging import correctness
from tools.judging.clock import Session
from tools.judging.comparison import Side
from tools.judging.inputs import InputSupply
from tools.judging.plan import TURNS, Plan
from tools.judging.referee import Referee
from tools.judging.worker import Worker

pytestmark = pytest.mark.guard("red team")

DIGEST = "digest = Digest(self.result[1], key)  # while the device still works"
RUN = f"""\
        with workload.guarded("call_raised", self.tree), _stance("force_eager") if as_written else nullcontext():
            self._start()
            {DIGEST}
            synchronize()
"""
RUN_BY_ITS_OWN_CLOCK = f"""\
        import time
        begun = time.perf_counter_ns()
{RUN}
        return {{"elapsed_ns": time.perf_counter_ns() - begun, "digest": digest.digits()}}
"""
REPLY = 'return {"digest": digest.digits()}'
KIND = 'return cls.__name__ if cls in (torch.Tensor, torch.nn.Parameter) else f"{cls.__module__}:{cls.__qualname__}"'


def without_commitments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that takes whatever digest it was sent."""
    monkeypatch.setattr(correctness, "digest", lambda leaves, key: ANY)


# -- 1: timers


@pytest.mark.guard("01_patched_timers")
def test_01_patched_timers_that_show_only_when_timed_are_refused_too(arena: Arena) -> None:
    assert arena.time("01_patched_timers").name == "refused"


@pytest.mark.alone
@pytest.mark.guard("01_patched_timers")
def test_01_gains_by_a_clock_inside_the_worker(arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_workers_clock(self: Worker, prepared: tuple[int, str, bytes]) -> tuple[str, int]:
        reply = self.ask("call", key=prepared[0])
        return reply["digest"], reply["elapsed_ns"]

    monkeypatch.setattr(Worker, "timed_call", by_the_workers_clock)
    monkeypatch.setattr(Worker, "tripped", lambda self: set())
    weak = arena.with_guest(tmp_path, {"worker.py": [(RUN, RUN_BY_ITS_OWN_CLOCK)]})
    kept(weak.time("01_patched_timers"))


# -- 4, 7, 24: outputs that are not there when the clock stops


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("04_lazy_result")
def test_04_a_lazy_result_gains_where_the_reply_needs_no_outputs(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_commitments(monkeypatch)
    weak = arena.with_guest(
        tmp_path,
        {
            "worker.py": [(DIGEST, ""), (REPLY, 'return {"digest": "none"}')],
            "tensors.py": [(KIND, "return cls.__name__")],
        },
    )
    kept(weak.judge("04_lazy_result"))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("07_empty_when_timed")
def test_07_outputs_that_are_empty_when_timed_gain_only_where_these_are_not_checked(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = arena.judge("07_empty_when_timed")
    assert (verdict.name, "while it was timed" in verdict.reason) == ("wrong", True)
    monkeypatch.setattr(Referee, "check_timed", nothing_found)
    kept(arena.with_setting().time("07_empty_when_timed"))


@pytest.mark.alone
@pytest.mark.guard("24_reply_first")
def test_24_gains_where_a_reply_commits_to_nothing(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    without_commitments(monkeypatch)
    staging_counts_nowhere(monkeypatch)  # the next staging waits for it
    kept(arena.time("24_reply_first"))


# -- 25: the length of a block


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("25_short_blocks")
def test_25_short_blocks_gain_only_by_the_slope(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    gains_nothing(arena.time("25_short_blocks"))
    whole = Session._block

    def slope(self: Session, case: int, plan: Plan, pair: Any, name: str, side: Side, keep: int | None) -> None:
        short, long = (Side({case: []}, {case: []}, {case: []}) for _ in range(2))
        whole(self, case, replace(plan, calls=4), pair, name, short, None)
        whole(self, case, replace(plan, calls=12), pair, name, long, keep)
        rise = (12 * median(long.call_ns[case]) - 4 * median(short.call_ns[case])) / 8  # no single pause decides
        side.call_ns[case].append(max(1000, round(rise)))
        side.calls[case] = 1  # a slope for each round
        side.stage_ns[case] += long.stage_ns[case]
        side.load_ns[case] += long.load_ns[case]

    monkeypatch.setitem(TURNS, "cpu", replace(TURNS["cpu"], rounds=7, fewest=7))
    monkeypatch.setattr(Session, "_block", slope)
    draw_all = InputSupply.draw_all
    monkeypatch.setattr(InputSupply, "draw_all", lambda *asked: [files * 2 for files in draw_all(*asked)])
    only_medians_count(monkeypatch)  # a sum of differences is as noisy as its worst one
    kept(arena.with_setting().time("25_short_blocks"))


# -- 26, 29: inputs that are known beforehand


@pytest.mark.alone
@pytest.mark.guard("26_remembered_results")
def test_26_a_memory_of_results_gains_only_where_a_few_inputs_take_turns(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    gains_nothing(arena.time("26_remembered_results"))
    draw_all = InputSupply.draw_all
    monkeypatch.setattr(InputSupply, "draw_all", lambda *asked: [files[:4] * 20 for files in draw_all(*asked)])
    kept(arena.with_setting().time("26_remembered_results"))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("29_looking_ahead")
def test_29_looking_ahead_gains_only_where_all_inputs_are_revealed_at_once(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    gains_nothing(arena.time("29_looking_ahead"))
    ask_all = Session._all

    def reveal_all(self: Session, op: str, arguments: Any, meanwhile: Callable[[], None] = lambda: None) -> None:
        ask_all(self, op, arguments, meanwhile)
        for group, name, worker in self._workers() if op == "build" else ():
            for number, given in enumerate(group.staged[name][0]):
                os.link(given.path, worker.inbox / f"ahead-{number}")

    monkeypatch.setattr(Session, "_all", reveal_all)
    kept(arena.with_setting().time("29_looking_ahead"))
