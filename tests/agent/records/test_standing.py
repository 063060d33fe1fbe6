"""Commands that end by their time go on as long as one of them leaves something new; then more time is asked for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agent.guard import Stopped
from agent.records import standing
from agent.records.standing import SliceTooShort


def stopped(run_dir: Path, *new: str, seconds: float = 60.0) -> None:
    """A command of so long that leaves these files."""
    standing.check(run_dir, seconds)
    before = standing.of(run_dir)
    for name in new:
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).write_text("x")
    standing.ended_by_time(run_dir, before, seconds)


def test_two_that_come_to_nothing_are_the_last_of_their_length(tmp_path: Path) -> None:
    stopped(tmp_path, "session/aa.json")
    for _ in range(2):
        stopped(tmp_path)
    with pytest.raises(SliceTooShort, match="last 2 commands"):
        standing.check(tmp_path, 60.0)
    standing.check(tmp_path, None)
    stopped(tmp_path, seconds=61.0)
    with pytest.raises(SliceTooShort):
        standing.check(tmp_path, 61.0)


def test_whatever_is_new_is_something(tmp_path: Path) -> None:
    for number in range(4):
        stopped(tmp_path, f"attempts/{number}/check.json")
        stopped(tmp_path)


def test_what_is_written_in_any_case_is_nothing(tmp_path: Path) -> None:
    for number in range(2):
        stopped(tmp_path, f"work/{number}", f"checkpoint.sqlite-{number}", f"sandbox/{number}")
    with pytest.raises(SliceTooShort):
        standing.check(tmp_path, 60.0)


def test_a_command_that_its_time_ends_is_noted_and_no_other(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGALRM):
        standing.check(tmp_path, 60.0)
        with pytest.raises(Stopped), standing.noted(tmp_path, 60.0):
            raise Stopped(number)
    with pytest.raises(SliceTooShort):
        standing.check(tmp_path, 60.0)
