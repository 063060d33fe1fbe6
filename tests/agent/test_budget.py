"""No step uses up the time that later ones need."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.budget import LOOK_S, LOOK_SHARE, Budget
from agent.context import RunContext
from agent.device_time import Metered
from agent.records import measurements
from agent.records.attempts import ON_WAITING
from agent.records.measurements import SessionStart
from tools.judging.measure import Comparison
from tools.judging.own_tests import OwnTests


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


def compared(*speedups: float) -> Comparison:
    ratios = [[math.log(speedup)] for speedup in speedups]
    return Comparison(purpose="", incumbent="", candidate="", case_log_ratios=ratios)


def context(
    run_dir: Path, deadline: float, *tried: str, compile_gains: tuple[float, ...] = (2.0,) * 6, title: str = "Compile"
) -> Any:
    """Of a run whose budget ends at `deadline` and that has attempts of these steps in its ledger."""
    session = SessionStart(
        aa=compared(1.0), own_tests=OwnTests(note="none"), compile={"default": compared(*compile_gains)}
    )
    measurements.keep(session, run_dir / "session.json")
    found = SimpleNamespace(
        run_dir=run_dir, budget=Budget(deadline), referee=SimpleNamespace(delta=0.02),
        ledger=SimpleNamespace(rows=[SimpleNamespace(step=step, verdict="slower", title=title) for step in tried]),
    )  # fmt: skip
    found._owes_compile = lambda: RunContext._owes_compile(found)  # type: ignore[arg-type]
    return found


def test_it_never_costs_a_run_what_one_line_of_torch_compile_gives(tmp_path: Path) -> None:
    over, ahead = time.monotonic() - 1.0, time.monotonic() + 1000.0
    owing = context(tmp_path, over, "audit_compute")
    assert not RunContext.out_of_time(owing, "compile_model")
    assert RunContext.out_of_time(owing, "swap_attention")
    assert not RunContext.out_of_time(context(tmp_path, ahead), "swap_attention")
    assert RunContext.out_of_time(context(tmp_path, over, "compile_model"), "compile_model"), "it is tried once"
    by_itself = context(tmp_path, over, "compile_model", title=f"Compile{ON_WAITING}")
    assert not RunContext.out_of_time(by_itself, "compile_model")


@pytest.mark.parametrize("gains", [(1.01,) * 6, (0.5, *(2.0,) * 5)])
def test_nothing_is_owed_where_torch_compile_does_not_pay(tmp_path: Path, gains: tuple[float, ...]) -> None:
    ctx = context(tmp_path, time.monotonic() - 1.0, compile_gains=gains)
    assert RunContext.out_of_time(ctx, "compile_model")


def test_what_earlier_commands_have_spent_on_a_run_counts() -> None:
    assert not Budget.left(10.0, spent_s=500.0).used_up() and Budget.left(10.0, spent_s=601.0).used_up()
    assert not Budget.left(None, spent_s=1e9).used_up()


def test_the_time_of_the_device_has_a_limit_of_its_own() -> None:
    used = [0.0]
    budget = Budget.left(None, 0.0).of_the_device(10.0, spent_s=400.0, used_s=lambda: used[0])
    assert not budget.used_up()
    used[0] = 201.0
    assert budget.used_up() and not Budget.left(None, 0.0).of_the_device(None, 1e9, lambda: 1e9).used_up()


def test_side_by_side_the_device_is_had_once() -> None:
    class Process:
        role = "worker"

        def stop(self) -> str:
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
    second.stop()
    after = metered.seconds
    time.sleep(0.02)
    assert metered.seconds == after and metered.name == "local"
