"""What one run timed serves another, and what could not be timed is not tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.synthetic_clock import SyntheticClock
from tools.errors import ClockNotRecorded
from tools.judging.measure import ComparisonRequest
from tools.judging.recorded_clock import RecordedClock, RecordingClock
from tools.judging.worker import Build, WorkerFault


def compiles_again(build: Build) -> Build:
    raise WorkerFault("compiles_again", "for each input")


def never(build: Build) -> Build:
    raise AssertionError("a recorded clock has nothing prepared")


def test_a_recording_answers_what_was_asked_and_nothing_else(tmp_path: Path) -> None:
    slow, fast = Build("slow", tmp_path / "slow"), Build("fast", tmp_path / "fast")
    for build, text in ((slow, "x.clone()"), (fast, "x")):
        build.tree.mkdir()
        (build.tree / "model.py").write_text(text)
    request = ComparisonRequest("confirm one", slow, {"candidate": fast}, lambda found: len(found.log_ratios) == 3)
    recording = RecordingClock(SyntheticClock(), tmp_path / "clock.json")
    found = recording.compare(request).only
    assert recording.filled(fast, lambda build: build) is fast
    with pytest.raises(WorkerFault):
        recording.filled(slow, compiles_again)
    recorded = RecordedClock(tmp_path / "clock.json")
    assert recorded.compare(request).only == found and len(found.log_ratios) == 3
    assert recorded.filled(fast, never) is fast
    with pytest.raises(WorkerFault, match="for each input") as fault:
        recorded.filled(slow, never)
    assert fault.value.kind == "compiles_again"
    with pytest.raises(ClockNotRecorded, match="confirm two"):
        recorded.compare(ComparisonRequest("confirm two", slow, {"candidate": fast}, request.enough))
    (row,) = (line for line in recording.file.read_text().splitlines() if "unfilled" not in line)
    recording.file.write_text(row.replace('"incumbent":"slow","candidate":"fast"', '"incumbent":"","candidate":""'))
    other = ComparisonRequest("confirm one", fast, {"candidate": slow}, request.enough)
    assert RecordedClock(recording.file).compare(other).only.log_ratios == found.log_ratios
