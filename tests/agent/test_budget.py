"""No step uses up the time that later ones need."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.budget import LOOK_S, LOOK_SHARE, Budget, longest_check_s
from agent.device_time import Metered


def test_without_a_limit_there_is_always_time() -> None:
    budget = Budget(restart_s=1e6)
    budget.reserve(9)
    assert not budget.used_up() and not budget.hurried()


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


def test_it_is_used_up_only_when_all_of_it_is() -> None:
    budget = Budget(time.monotonic() + 1000.0, restart_s=10.0)
    budget.reserve(1000)
    assert not budget.used_up()
    assert Budget(time.monotonic() - 1.0).used_up()


def test_what_earlier_commands_have_spent_on_a_run_counts() -> None:
    assert not Budget.left(10.0, spent_s=500.0).used_up() and Budget.left(10.0, spent_s=601.0).used_up()
    assert not Budget.left(None, spent_s=1e9).used_up()


@pytest.mark.parametrize(("minutes", "seconds"), [(None, 1200.0), (60.0, 1200.0), (22.0, 660.0), (1.0, 400.0)])
def test_what_compiles_itself_without_an_end_does_not_take_the_whole_budget(
    minutes: float | None, seconds: float
) -> None:
    assert longest_check_s(minutes) == seconds


def test_the_time_of_the_device_has_a_limit_of_its_own() -> None:
    used = [0.0]
    budget = Budget.left(None, 0.0).of_the_device(10.0, spent_s=400.0, used_s=lambda: used[0])
    assert not budget.used_up()
    used[0] = 201.0
    assert budget.used_up() and not Budget.left(None, 0.0).of_the_device(None, 1e9, lambda: 1e9).used_up()


def test_side_by_side_the_device_is_had_once() -> None:
    stopped = list[object]()

    class Process:
        role = "worker"

        def stop(self) -> str:
            stopped.append(self)
            return "ended"

        def freeze(self) -> None: ...

        def thaw(self) -> None: ...

    metered = Metered(cast(Any, SimpleNamespace(name="local", start=lambda command: Process())))
    first, second = metered.start(cast(Any, None)), metered.start(cast(Any, None))
    assert first.role == "worker" and cast(Any, first.stop()) == "ended"
    first.stop()
    before = metered.seconds
    time.sleep(0.02)
    assert metered.seconds - before >= 0.02, "the second still has it"
    second.freeze()
    frozen = metered.seconds
    time.sleep(0.02)
    assert metered.seconds == frozen, "nobody can use it"
    second.thaw()
    time.sleep(0.02)
    assert metered.seconds > frozen
    metered.stop_running()
    assert len(stopped) == 3 and stopped[0] is stopped[1] is not stopped[2], "only what still runs"
    after = metered.seconds
    time.sleep(0.02)
    assert metered.seconds == after and metered.name == "local"


def test_one_process_that_cannot_be_ended_keeps_no_other_alive() -> None:
    asked = list[object]()

    class Process:
        def stop(self) -> str:
            asked.append(self)
            raise RuntimeError("it cannot be ended")

    metered = Metered(cast(Any, SimpleNamespace(name="local", start=lambda command: Process())))
    for _ in range(3):
        metered.start(cast(Any, None))
    with pytest.raises(RuntimeError):
        metered.stop_running()
    assert len({id(each) for each in asked}) == 3
    metered.stop_running()  # none of them counts any more
