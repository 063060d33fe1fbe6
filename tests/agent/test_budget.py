"""No step uses up the time that later ones need."""

from __future__ import annotations

import time

from agent.budget import ATTEMPT_RESTARTS, Budget


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


def test_it_is_used_up_only_when_all_of_it_is() -> None:
    budget = Budget(time.monotonic() + 1000.0, restart_s=10.0)
    budget.reserve(1000)
    assert not budget.used_up()
    assert Budget(time.monotonic() - 1.0).used_up()
