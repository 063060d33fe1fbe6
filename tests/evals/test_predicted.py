"""A ceiling that was passed is told, and chance does not pass one."""

from __future__ import annotations

import pytest

from agent.reporting.report import Kept, Step
from agent.step_names import STEPS
from evals import predicted
from tests.agent.reporting.sample_report import interval, sample

NOTHING = {"speedup": None, "speedup_over_compile": None}


def told(at_most: float | None, *gains: tuple[float, float, float]) -> str:
    steps = [Step(name=name, status="done", at_most=at_most if name == "fuse_projections" else 9.0) for name in STEPS]
    kept = [
        Kept(attempt="a1", step="fuse_projections", title="one", commit="0" * 40, speedup=interval(*gain))
        for gain in gains
    ]
    return predicted.table(predicted.gained("decoder", sample(steps=steps, kept=kept, **(NOTHING if not kept else {}))))


@pytest.mark.parametrize(
    ("at_most", "gains", "says"),
    [
        (1.5, [(1.32, 1.28, 1.37)], "held"),
        (1.3, [(1.32, 1.28, 1.37)], "held"),  # by chance, perhaps
        (1.2, [(1.32, 1.28, 1.37)], "passed"),
        (1.6, [(1.32, 1.28, 1.37), (1.3, 1.26, 1.32)], "passed"),  # together
    ],
)
def test_a_ceiling_holds_or_is_passed(at_most: float, gains: list[tuple[float, float, float]], says: str) -> None:
    (row,) = told(at_most, *gains).splitlines()[2:]
    assert "| decoder | fuse_projections |" in row and says in row


def test_what_has_no_ceiling_or_kept_nothing_is_not_listed() -> None:
    assert told(None, (1.32, 1.28, 1.37)) == ""
    assert told(1.5) == ""


def test_what_several_steps_gained_together_is_the_gain_of_none() -> None:
    steps = [Step(name=name, status="done", at_most=1.2) for name in STEPS]
    (one, two) = (
        Kept(attempt=name, step=step, title=name, commit="0" * 40, speedup=speedup, together_with=others)
        for name, step, speedup, others in (
            ("a1", "fuse_projections", None, []),
            ("a2", "compile_model", interval(3.0, 2.9, 3.1), ["a1"]),
        )
    )
    assert predicted.table(predicted.gained("decoder", sample(steps=steps, kept=[one, two]))) == ""
