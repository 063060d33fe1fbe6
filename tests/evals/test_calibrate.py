"""A comparison by which nothing is decided is a row of the calibration like any other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evals import calibrate
from evals.calibrate import EFFECTS, Calibration
from tools.judging.check import Checked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.verdict import of_failed
from tools.judging.worker import Build

COMPARED = Comparison(purpose="", incumbent="one", candidate="other", unsettled="it changed its pace")
UNDECIDED: Any = SimpleNamespace(  # a referee whose machine changes its pace before a restart is over
    time=lambda *asked: of_failed(COMPARED, {"comparison": COMPARED.summary(0.02)}),
)


def test_one_that_is_not_decided_is_not_kept_and_the_next_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    found, build = Calibration(command=["evals"]), Build("one", Path("/nowhere"))
    for effect in EFFECTS:
        found.judged.append(calibrate._judge(UNDECIDED, effect, Checked(Finding(None, ""), build), build))
        calibrate._say(effect, 0, found.judged[-1])
    assert [(judged.kept, judged.restarts, judged.interval) for judged in found.judged] == [(False, 0, None)] * 3
    assert capsys.readouterr().out.count("nothing decided, 0 restarts") == 3
    page = Calibration.model_validate_json(found.model_dump_json()).page()
    assert all(f"| {each.name} | 1 | 0 | {each.least_kept} to {each.most_kept} | – |" in page for each in EFFECTS)
