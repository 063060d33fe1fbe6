"""The order of the steps: what was measured at the start may put one of them first."""

from __future__ import annotations

import pytest

from agent import schedule
from agent.records.measurements import SessionStart
from agent.state import RunState, ended
from agent.step_names import STEPS
from tests.tools.judging.compared import compared
from tools.judging.own_tests import OwnTests


def session(gain: float | None, failed: str = "") -> SessionStart:
    timed, not_timed = (
        ({} if gain is None else {"default": compared([gain] * 6)}),
        {"default": failed} if failed else {},
    )
    return SessionStart(aa=compared([]), own_tests=OwnTests(note=""), compile=timed, compile_failed=not_timed)


@pytest.mark.parametrize(
    ("known", "on_gpu", "waits", "first"),
    [
        (session(0.4), True, False, "compile_model"),
        (session(0.4), False, False, ""),
        (session(-0.1), True, True, ""),
        (session(None, "no answer within 72 s"), True, True, "capture_graph"),
        (session(None, "no answer within 72 s"), True, False, ""),
        (session(None), True, True, ""),
    ],
)
def test_what_pays_goes_first_on_a_gpu_and_what_cannot_be_compiled_is_recorded(
    known: SessionStart, on_gpu: bool, waits: bool, first: str
) -> None:
    assert schedule.first(known, 0.02, on_gpu=on_gpu, waits=waits) == first


@pytest.mark.parametrize("first", ["", *schedule.FIRST])
def test_each_step_comes_once_and_only_where_the_graph_has_a_way(first: str) -> None:
    state: RunState = {"results": {}}
    walked, step = [], STEPS[0]
    while True:
        walked.append(step)
        assert sorted([*walked, *schedule.to_come(state, step, STEPS)]) == sorted(STEPS)
        state["results"] |= ended(step, "done")["results"]
        after = (first if step == STEPS[0] else "") or schedule.following(state)
        if after is None:
            break
        assert after in schedule.ways(step)
        step = after
    assert sorted(walked) == sorted(STEPS) and walked[1] == (first or STEPS[1])


def test_only_the_likeliest_change_of_a_step_is_put_first() -> None:
    first: RunState = {"results": ended(STEPS[0], "done")["results"]}
    assert [step for step in STEPS if schedule.is_early(first, step)] == [*schedule.FIRST]
    after: RunState = {"results": {**first["results"], **ended(STEPS[1], "done")["results"]}}
    assert not any(schedule.is_early(after, step) for step in STEPS)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_after_a_step_that_was_gone_back_to_comes_the_last(step: str) -> None:
    state: RunState = {"results": {name: {} for name in STEPS[:-1]}}  # type: ignore[misc]
    assert schedule.following(state) == STEPS[-1] and STEPS[-1] in schedule.ways(step)
