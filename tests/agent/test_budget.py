"""No step uses up the time that later ones need."""

from __future__ import annotations

import time

from agent.budget import ATTEMPT_RESTARTS, LOOK_SHARE, Budget


def test_without_a_limit_there_is_always_time() -> None:
    budget = Budget(restart_s=1e6)
    budget.reserve(9)
    assert not budget.used_up() and not budget.hurried(1000)


def test_what_is_reserved_for_later_steps_is_not_spent_on_more_looks() -> None:
    budget = Budget(time.monotonic() + 1000.0, restart_s=10.0)
    budget.reserve(5)
    left = 1000.0 / 10.0 - 5 * ATTEMPT_RESTARTS
    assert not budget.hurried(int(left) - 2)
    assert budget.hurried(int(left) + 2)
    budget.reserve(0)
    assert not budget.hurried(int(left) + 2)


def test_one_more_look_at_one_change_may_not_take_much_of_what_is_left() -> None:
    budget = Budget(time.monotonic() + 1000.0, restart_s=10.0)
    most = int(LOOK_SHARE * 1000.0 / 10.0)
    assert not budget.too_dear(most - 1) and budget.too_dear(most + 1)
    assert not budget.hurried(most + 1)
    budget.reserve(8)
    assert budget.too_dear(most - 1), "nor what is reserved"
    assert not Budget(restart_s=1e6).too_dear(18)


def test_it_is_used_up_only_when_all_of_it_is() -> None:
    budget = Budget(time.monotonic() + 1000.0, restart_s=10.0)
    budget.reserve(1000)
    assert not budget.used_up()
    assert Budget(time.monotonic() - 1.0).used_up()
