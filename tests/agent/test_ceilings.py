"""What a step can gain at most is taken from the profile of the original; a step that can show nothing is left out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.budget import Budget
from agent.config import RunConfig
from agent.records import measurements
from agent.records.run_records import AUDITED, RunRecords
from agent.state import RunState
from agent.steps.summing_up import climbing_step
from tests.agent.one_context import ledger_of, one_context
from tests.agent.reporting.sample_report import interval
from tools.profiler.result import Profile, StepCeiling


def context(run_dir: Path, ceilings: dict[str, float], *rows: tuple[str, str, float], role: str = "first") -> Any:
    """Of a run that has these rows (step, verdict, speedup) in its ledger, the first with this role; only what is asked
    for here.
    """
    profile = Profile(
        entry="bench.py",
        device="cpu",
        calls=1,
        call_us=100.0,
        busy_us=100.0,
        span_us=100.0,
        idle_share=0.0,
        steps=[StepCeiling(step=step, speedup=most, reason="made up", if_free=most) for step, most in ceilings.items()],
    )
    place = measurements.profile_file(run_dir, "baseline")
    place.parent.mkdir(parents=True, exist_ok=True)
    measurements.keep(profile, place)
    tried = [{"step": step, "verdict": verdict, "speedup": interval(gain, gain, gain)} for step, verdict, gain in rows]
    tried[:1] = [{**row, "role": role} for row in tried[:1]]
    config = RunConfig(target=run_dir / "t", entry="bench.py", runs_dir=run_dir / "r")
    found = one_context(
        run_dir=run_dir,
        ledger=ledger_of(run_dir, *tried),
        config=config,
        referee=SimpleNamespace(delta=0.03),
        budget=Budget(),
        stack=SimpleNamespace(commits=list),
        progress=SimpleNamespace(emit=lambda event: None),
    )
    found.at_most = lambda step: RunRecords.at_most(found, step)
    return found


def most(run_dir: Path, *rows: tuple[str, str, float]) -> float:
    return float(
        context(run_dir, {"compile_model": 1.25, "compose_stack": 4.0}, *rows).at_most("compile_model").speedup
    )


def test_on_a_faster_stack_a_step_saves_the_same_time_of_a_shorter_call(tmp_path: Path) -> None:
    assert most(tmp_path) == pytest.approx(1.25)  # a fifth of a call
    assert most(tmp_path, ("audit_compute", "kept", 2.0)) == pytest.approx(1 / 0.6)  # two fifths of half a call
    assert most(tmp_path, ("audit_compute", "neutral", 2.0)) == pytest.approx(1.25)
    assert most(tmp_path, ("compile_model", "kept", 1.2), ("audit_compute", "kept", 2.0)) == pytest.approx(1.25)
    assert most(tmp_path, ("audit_compute", "kept", 3.9)) == pytest.approx(4 / 3.9)  # there is nothing more below
    assert most(tmp_path, ("audit_compute", "kept", 5.0)) == 1.0
    assert context(tmp_path, {}).at_most("compile_model") is None


def test_what_was_measured_with_the_baseline_begins_no_step(tmp_path: Path) -> None:
    rows = ("compile_model", "broken", 1.0), ("audit_compute", "kept", 2.0)
    ceilings = {"compile_model": 1.25, "compose_stack": 4.0}
    for role, gain in (("first", 1.25), ("beside", 1 / 0.6)):
        folder = tmp_path / role
        assert context(folder, ceilings, *rows, role=role).at_most("compile_model").speedup == pytest.approx(gain)


def test_a_step_is_not_left_out_for_what_the_device_was_measured_to_reach(tmp_path: Path) -> None:
    ctx = context(tmp_path, {"fuse_projections": 1.0, "compose_stack": 4.0})
    profile = measurements.profile(tmp_path, "baseline")
    assert profile is not None
    profile.steps[0].if_free = 1.5  # products are a third of a call, at the speed of light as it was measured
    measurements.keep(profile, measurements.profile_file(tmp_path, "baseline"))
    assert climbing_step({}, ctx, "fuse_projections")["climbing"]


def test_what_is_left_after_an_audit_is_what_later_steps_work_on(tmp_path: Path) -> None:
    rows = ("audit_compute", "kept", 5.0), ("fuse_projections", "kept", 2.0)
    ctx = context(tmp_path, {"audit_compute": 9.0, "compile_model": 1.25, "compose_stack": 4.0}, *rows)
    assert ctx.at_most("compile_model").speedup == 1.0  # by the original nothing is left
    profile = measurements.profile(tmp_path, "baseline")
    assert profile is not None
    measurements.keep(profile, measurements.profile_file(tmp_path, AUDITED))
    assert ctx.at_most("compile_model").speedup == pytest.approx(1 / 0.6)
    assert ctx.at_most("audit_compute").speedup == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("step", "ceiling", "skipped"),
    [("compile_model", 1.01, True), ("compile_model", 1.04, False), ("audit_compute", 1.01, False)],
)
def test_a_step_that_could_show_nothing_is_left_out(step: str, ceiling: float, skipped: bool, tmp_path: Path) -> None:
    state: RunState = {}
    update = climbing_step(state, context(tmp_path, {step: ceiling, "compose_stack": 4.0}), step)
    if skipped:
        assert update["results"][step]["status"] == "skipped"
        assert "that would be 1.010×" in update["results"][step]["reason"]
        assert update["results"][step]["at_most"] == pytest.approx(1.01)
    else:
        assert update["climbing"]


def test_a_step_that_the_run_goes_back_to_keeps_what_it_found(tmp_path: Path) -> None:
    ctx = context(tmp_path, {"compile_model": 1.01, "compose_stack": 4.0}, ("compile_model", "kept", 2.0))
    assert climbing_step({}, ctx, "audit_compute", "nothing of it")["results"]["audit_compute"]["status"] == "skipped"
    found = climbing_step({}, ctx, "compile_model", "nothing of it")["results"]["compile_model"]
    assert (found["status"], found["kept"], found["attempts"]) == ("done", 1, 1)
    assert found["reason"] == "nothing more to try: nothing of it"
