"""The budget bounds the whole command, and what is proven when it is used up is handed over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.budget import (
    ATTEMPT_RESTARTS,
    COMPILING_RESTARTS,
    COMPILING_S,
    COMPILING_SHARE,
    FINAL_RESTARTS,
    FOR_COMPILING,
    LAST_SHARE,
    LOOK_S,
    LOOK_SHARE,
    START_SHARE,
    USED_UP,
    Budget,
    TimeIsUp,
    longest_wait_s,
)
from tests.agent.synthetic_clock import IS_UP
from tests.agent.whole_runs import COPIES, TWO_BRANCHES, Ran, agent
from tests.files import write_files

MINUTES = ("--budget-minutes", "10")


def ran_until(purpose: str, tmp_path: Path) -> Ran:
    """A run whose time is over when this comparison begins."""
    target = write_files(tmp_path / "target", {"bench.py": TWO_BRANCHES, "tail.py": COPIES})
    steps = "profile_baseline,audit_compute,fuse_projections,compose_stack"
    return agent(target, tmp_path / "runs", *MINUTES, "--steps", steps, **{IS_UP: purpose})


@pytest.mark.slow
@pytest.mark.parametrize(("purpose", "step"), [("fuse_projections-1", "fuse_projections"), ("whole", "compose_stack")])
def test_what_is_proven_when_the_time_is_over_is_handed_over(purpose: str, step: str, tmp_path: Path) -> None:
    ran = ran_until(purpose, tmp_path)
    assert ran.status == 0, ran.message
    assert ran.report.kept and ran.report.result is not None and ran.report.speedup is None
    assert next(each.reason for each in ran.report.steps if each.name == step) == "the time budget was used up"
    assert any("The time budget was used up" in note for note in ran.report.notes)


def test_a_budget_that_is_over_before_anything_is_judged_is_told_with_what_to_do(tmp_path: Path) -> None:
    ran = ran_until("aa", tmp_path)
    assert ran.status == 59 and "budget of 10 minutes was over before the original was measured" in ran.message
    assert "--budget-minutes" in ran.message


def test_its_end_interrupts_whatever_is_waited_for() -> None:
    with pytest.raises(TimeIsUp), Budget(time.monotonic() + 0.05).enforced():
        time.sleep(60.0)
    with Budget(time.monotonic() + 0.05).enforced():
        pass
    time.sleep(0.1)  # it is not told any more


def test_it_is_used_up_when_all_of_it_is_earlier_commands_included() -> None:
    unlimited, limited = Budget(restart_s=1e6), Budget(time.monotonic() + 1000.0, restart_s=10.0)
    for budget in (unlimited, limited):
        budget.reserve(1000)
    assert not unlimited.used_up() and not unlimited.hurried() and not limited.used_up()
    assert not Budget.left(10.0, spent_s=500.0).used_up() and Budget.left(10.0, spent_s=601.0).used_up()
    assert not Budget.left(None, spent_s=1e9).used_up()


def test_what_is_reserved_for_later_steps_is_not_spent_on_more_attempts_or_looks() -> None:
    budget = Budget(time.monotonic() + 1000.0, restart_s=100.0 / ATTEMPT_RESTARTS)
    budget.reserve(8)
    assert not budget.hurried() and not budget.too_dear(180.0) and budget.too_dear(220.0)
    budget.reserve(9)
    assert budget.hurried()


def test_what_is_measured_at_the_start_gets_no_better_after_a_share_of_the_whole_budget() -> None:
    budget = Budget.left(10.0, spent_s=0.0)
    assert not budget.too_dear(START_SHARE * 600.0 - 10.0) and budget.too_dear(START_SHARE * 600.0 + 10.0)
    assert Budget.left(10.0, spent_s=START_SHARE * 600.0).too_dear(0.0), "earlier commands included"
    budget.know(restart_s=1.0)
    budget.reserve(1)
    assert budget.too_dear(START_SHARE * 600.0 - 10.0), "one change gets less"


def test_a_change_that_gained_each_time_gets_time_of_later_ones() -> None:
    budget = Budget(time.monotonic() + 200.0, total_s=400.0)
    budget.know(restart_s=5.0, compiles_later=True)
    budget.reserve(3)
    assert budget.for_compiling_s == 160.0 and budget.too_dear(10.0)
    assert not budget.too_dear(80.0, likely=True) and budget.too_dear(96.0, likely=True)
    budget.begin_compiling()
    assert budget.too_dear(LOOK_S + 1, likely=True)


def test_a_change_that_gained_each_time_gets_no_time_of_compiling_where_there_is_too_little() -> None:
    budget = Budget(time.monotonic() + 200.0, total_s=300.0)
    budget.know(restart_s=10.0, compiles_later=True)
    assert budget.for_compiling_s == 150.0 and not budget.too_dear(30.0, likely=True)
    assert budget.too_dear(45.0, likely=True)
    budget.begin_compiling()
    assert not budget.too_dear(45.0, likely=True)


def test_one_more_look_at_one_change_may_not_take_much_of_what_is_left() -> None:
    budget = Budget(time.monotonic() + 600.0, restart_s=10.0)
    assert not budget.too_dear(LOOK_S - 10.0), "nothing else is to come"
    budget.deadline = time.monotonic() + 100.0
    assert not budget.too_dear(LAST_SHARE * 100.0 - 5.0) and budget.too_dear(LAST_SHARE * 100.0 + 5.0)
    budget.keep_back()
    budget.finish()
    assert not budget.too_dear(LOOK_SHARE * 100.0 - 5.0) and budget.too_dear(LOOK_SHARE * 100.0 + 5.0)
    budget.deadline, budget.proven = time.monotonic() + 600.0, False
    budget.reserve(1)
    assert not budget.too_dear(LOOK_SHARE * 600.0 - 10.0) and budget.too_dear(LOOK_SHARE * 600.0 + 10.0)
    assert not Budget().too_dear(LOOK_S) and Budget().too_dear(LOOK_S + 1.0), "however much is left"


def test_time_is_kept_back_for_the_final_measurement_from_the_first_proven_change_until_it_begins() -> None:
    for known in ({"restart_s": 101.0 / FINAL_RESTARTS}, {"restart_s": 1.0, "final_restart_s": 101.0 / FINAL_RESTARTS}):
        budget = Budget(time.monotonic() + 100.0)
        budget.know(**known)
        assert not budget.used_up() and not budget.too_dear(70.0), "nothing is proven that could be measured"
        budget.keep_back()
        assert budget.used_up() and budget.too_dear(1.0)
    budget.know(restart_s=1.0)
    budget.kept_back_s = 0.0
    budget.keep_back(restart_s=101.0 / FINAL_RESTARTS)
    assert budget.used_up(), "what was kept takes longer"
    budget.finish()
    assert not budget.used_up() and not budget.too_dear(1.0)


def test_time_is_kept_for_compiling_until_that_begins() -> None:
    budget = Budget(time.monotonic() + 30.0, total_s=120.0)
    budget.know(restart_s=1.0, compiles_later=True)
    assert budget.used_up() == FOR_COMPILING and budget.for_compiling_s == COMPILING_SHARE * 120.0
    budget.total_s = 900.0
    budget.know(restart_s=2.0, compiles_later=True)
    assert budget.for_compiling_s == COMPILING_S + COMPILING_RESTARTS * 2.0, "of a long budget not more than it takes"
    budget.know(restart_s=1.0, compiles_later=True)
    budget.begin_compiling()
    assert not budget.used_up() and budget.restart_s == 1.0
    budget.learn(check_s=7.0)
    budget.learn(check_s=2.0)
    assert not budget.used_up() and budget.restart_s == (7.0 + 3 * 1.0) / ATTEMPT_RESTARTS
    budget.deadline = time.monotonic()
    assert budget.used_up() == USED_UP


def test_an_attempt_needs_more_time_than_is_left_before_all_is_used_up() -> None:
    budget = Budget(time.monotonic() + 30.0, total_s=60.0)
    budget.know(restart_s=2.5)
    budget.keep_back()  # 10 s
    assert (budget.used_up(1), budget.used_up(2)) == ("", USED_UP) and not budget.used_up()
    budget.know(restart_s=2.5, compiles_later=True)
    assert budget.used_up(1) == FOR_COMPILING


@pytest.mark.parametrize(
    ("minutes", "most_s", "seconds"), [(None, 1200.0, 1200.0), (10, 1200.0, 120.0), (60, 90.0, 90.0)]
)
def test_no_single_wait_takes_more_than_a_fifth(minutes: float | None, most_s: float, seconds: float) -> None:
    assert longest_wait_s(minutes, most_s) == seconds
