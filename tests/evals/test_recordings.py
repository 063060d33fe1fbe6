"""Runs that a model took part in come out the same again, without it, without timing anything and without titles."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from agent.step_names import STEPS
from tests import forking
from tests.agent.random_titles import random_titles
from tests.agent.whole_runs import ROOT, called, run_options

EVALS = ROOT / "evals"
RECORDINGS = sorted(path.parent for path in (EVALS / "recordings").glob("*/exchanges.jsonl"))


def kept(report: Path) -> list[Any]:
    return [(each["attempt"], each["step"]) for each in json.loads(report.read_text(encoding="utf-8"))["kept"]]


def attempts(report: Path, steps: Collection[str]) -> list[Any]:
    told = json.loads(report.read_text(encoding="utf-8"))["attempts"]
    return [(each["id"], each["verdict"]) for each in told if each["step"] in steps]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_a_recorded_run_comes_out_the_same(recording: Path, tmp_path: Path) -> None:
    options = json.loads((recording / "options.json").read_text())
    steps = options[options.index("--steps") + 1].split(",") if "--steps" in options else STEPS
    replayed = ("--replay", str(recording / "exchanges.jsonl"), "--replay-clock", str(recording / "clock.jsonl"))
    with forking.chosen(), random_titles():
        ran = called(
            tmp_path, "run", *run_options(EVALS / "tasks" / recording.name, tmp_path, "again"), *replayed, *options
        )
    assert ran.status == 0, ran.output + ran.message
    again = tmp_path / "again" / "report.json"
    assert attempts(again, STEPS) == attempts(recording / "report.json", steps)
    assert kept(again) == kept(recording / "report.json") != []


def test_there_are_recordings() -> None:
    assert {path.name for path in RECORDINGS} >= {"segment_pool"}
