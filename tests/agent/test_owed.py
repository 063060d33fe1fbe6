"""What a run owes its user whatever its time budget says, and what each step leaves of that for later ones."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import owed
from agent.budget import Budget
from agent.records import measurements
from agent.records.measurements import SessionStart
from tests.agent.one_context import ledger_of, one_context
from tools.judging.accept import speedup_interval
from tools.judging.comparison import Comparison
from tools.judging.own_tests import OwnTests

Tried = tuple[str, str, tuple[str, ...]]  # step, verdict, what lay below


def compared(*speedups: float) -> Comparison:
    ratios = [[math.log(speedup)] for speedup in speedups]
    return Comparison(purpose="", incumbent="", candidate="", case_log_ratios=ratios)


def context(run_dir: Path, *tried: Tried, left_s: float = -1.0, compile_gains: tuple[float, ...] = (2.0,) * 6) -> Any:
    """Of a run with so much time left and these attempts in its ledger."""
    session = SessionStart(
        aa=compared(1.0), own_tests=OwnTests(note="none"), compile={"default": compared(*compile_gains)}
    )
    measurements.keep(session, run_dir / "session.json")
    rows = [{"step": step, "verdict": verdict, "below": below} for step, verdict, below in tried]
    return one_context(
        run_dir=run_dir,
        budget=Budget(time.monotonic() + left_s),
        referee=SimpleNamespace(delta=0.02),
        ledger=ledger_of(run_dir, *rows),
    )


def test_it_never_costs_a_run_what_one_line_of_torch_compile_gives(tmp_path: Path) -> None:
    assert not owed.out_of_time(context(tmp_path, ("audit_compute", "kept", ())), "compile_model")
    assert owed.out_of_time(context(tmp_path), "swap_attention")
    assert not owed.out_of_time(context(tmp_path, left_s=1000.0), "swap_attention")


@pytest.mark.parametrize(
    ("verdict", "below", "owes"),
    [("slower", (), False), ("broken", ("fuse_projections-1",), True), ("kept", ("fuse_projections-1",), False)],
)
def test_one_try_on_nothing_but_what_was_proven_is_owed(
    tmp_path: Path, verdict: str, below: tuple[str, ...], owes: bool
) -> None:
    assert owed.owes_a_try(context(tmp_path, ("compile_model", verdict, below)), "compile_model") == owes


@pytest.mark.parametrize("gains", [(1.01,) * 6, (0.5, *(2.0,) * 5)])
def test_nothing_is_owed_where_torch_compile_does_not_pay(tmp_path: Path, gains: tuple[float, ...]) -> None:
    assert owed.out_of_time(context(tmp_path, compile_gains=gains), "compile_model")


@pytest.mark.parametrize(("gains", "behind"), [((1.3, None), True), ((1.3, 1.6), False), ((1.98,), False), ((), True)])
def test_the_stack_is_behind_one_line_when_its_changes_gained_less_together(
    tmp_path: Path, gains: tuple[float | None, ...], behind: bool
) -> None:
    ctx = context(tmp_path)
    found = [None if gain is None else speedup_interval([math.log(gain)] * 6, 0.02) for gain in gains]
    names = [f"s-{number}" for number, _ in enumerate(gains, 1)]
    ctx.ledger = ledger_of(tmp_path, *[{"speedup": each, "stack": names} for each in found])
    assert owed.behind_one_line(ctx) == behind
