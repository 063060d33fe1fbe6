"""No step uses up the time that later ones need."""

from __future__ import annotations

import time

import pytest

from agent.budget import LOOK_S, LOOK_SHARE, Budget, longest_check_s


def test_it_is_used_up_when_all_of_it_is_earlier_commands_included() -> None:
    unlimited, limited = Budget(restart_s=1e6), Budget(time.monotonic() + 1000.0, restart_s=10.0)
    for budget in (unlimited, limited):
        budget.reserve(1000)
    assert not unlimited.used_up() and not unlimited.hurried() and not limited.used_up()
    assert not Budget.left(10.0, spent_s=500.0).used_up() and Budget.left(10.0, spent_s=601.0).used_up()
    assert not Budget.left(None, spent_s=1e9).used_up()


def test_what_is_reserved_for_later_steps_is_not_spent_on_more_attempts_or_looks() -> None:
    budget = Budget(time.monotonic() + 1000.0, restart_s=10.0)
    budget.reserve(7)
    assert not budget.hurried() and not budget.too_dear(150.0) and budget.too_dear(170.0)
    budget.reserve(8)
    assert budget.hurried()


def test_one_more_look_at_one_change_may_not_take_much_of_what_is_left() -> None:
    budget = Budget(time.monotonic() + 600.0, restart_s=10.0)
    assert not budget.too_dear(LOOK_SHARE * 600.0 - 10.0) and budget.too_dear(LOOK_SHARE * 600.0 + 10.0)
    assert not Budget().too_dear(LOOK_S) and Budget().too_dear(LOOK_S + 1.0), "however much is left"


@pytest.mark.parametrize(("minutes", "seconds"), [(None, 1200.0), (60.0, 1200.0), (22.0, 660.0), (1.0, 400.0)])
def test_what_compiles_itself_without_an_end_does_not_take_the_whole_budget(
    minutes: float | None, seconds: float
) -> None:
    assert longest_check_s(minutes) == seconds
