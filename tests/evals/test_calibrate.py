"""A comparison by which nothing is decided is a row of the calibration like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evals import calibrate
from evals.calibrate import EFFECTS, Calibration
from tools.judging.check import Checked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.measure import Measured
from tools.judging.verdict import of_failed
from tools.judging.worker import Build

BUILD = Build("one", Path("/nowhere"))


class Undecided:
    """A referee whose machine changes its pace before a restart is over."""

    delta = 0.02

    def confirm(self, purpose: str, incumbent: Build, candidate: Build) -> Measured:
        return Measured({"candidate": self._compared(purpose)})

    def time(self, checked: Checked, incumbent: Build, purpose: str) -> Any:
        compared = self._compared(purpose)
        return of_failed(compared, {"screen": compared.summary(self.delta)})

    def _compared(self, purpose: str) -> Comparison:
        return Comparison(purpose=purpose, incumbent="one", candidate="other", unsettled="it changed its pace")


def test_one_that_is_not_decided_is_not_kept_and_the_next_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    found = Calibration(command=["evals"])
    referee: Any = Undecided()
    for effect in EFFECTS:
        judged = calibrate._judge(referee, effect, Checked(Finding(None, ""), BUILD), BUILD)
        calibrate._say(effect, 0, judged)
        found.judged.append(judged)
    assert [(judged.kept, judged.restarts, judged.interval) for judged in found.judged] == [(False, 0, None)] * 3
    assert capsys.readouterr().out.count("nothing decided, 0 restarts") == 3
    page = Calibration.model_validate_json(found.model_dump_json()).page()
    assert all(
        f"| {effect.name} | 1 | 0 | {effect.least_kept} to {effect.most_kept} | – |" in page for effect in EFFECTS
    )
