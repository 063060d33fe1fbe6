"""A command stops by the time it was given, before what it would not finish, and the run goes on with another."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import cli
from agent.guard import Stopped
from agent.reporting import report
from agent.time_slice import TimeSlice
from tests.agent.test_whole_run import ROOT, TASK


def test_an_attempt_that_would_not_be_done_is_not_begun() -> None:
    found = TimeSlice(1000.0, longest_s=999.9)
    time.sleep(0.2)
    with pytest.raises(Stopped):
        found.before_attempt()
    TimeSlice(1000.0, longest_s=500.0).before_attempt()
    TimeSlice(None, longest_s=1e9).before_attempt()


def test_the_first_attempt_is_begun_in_any_case() -> None:
    found = TimeSlice(0.001)
    time.sleep(0.01)
    found.before_attempt()
    found.after_attempt()
    with pytest.raises(Stopped):
        found.before_attempt()


def test_the_longest_attempt_is_what_the_next_may_take() -> None:
    found = TimeSlice(60.0)
    found.before_attempt()
    time.sleep(0.05)
    found.after_attempt()
    longest = found.longest_s
    assert longest >= 0.05
    found.before_attempt()
    found.after_attempt()
    found.after_attempt()
    assert found.longest_s == longest


def test_what_would_be_lost_halfway_is_left_to_the_next_command_where_that_has_room() -> None:
    begun = TimeSlice(100.0)
    begun.before(50.0)
    late = TimeSlice(100.0, _begun=time.monotonic() - 60.0)
    late.before(30.0)
    with pytest.raises(Stopped):
        late.before(45.0)
    late.before(55.0)  # no command would ever come to it
    TimeSlice(None, _begun=time.monotonic() - 1e6).before(1e6)


@pytest.mark.parametrize("ask", [TimeSlice.before_attempt, lambda found: found.before(400.0)])
def test_what_stops_before_its_time_is_over_is_not_interrupted_by_the_alarm(ask: Callable[[TimeSlice], None]) -> None:
    before, left = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        found = TimeSlice(1000.0, longest_s=999.0, _begun=time.monotonic() - 700.0)
        found.start()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        with pytest.raises(Stopped):
            ask(found)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


def test_when_it_is_over_everything_stops() -> None:
    before = signal.getsignal(signal.SIGALRM)
    try:
        TimeSlice(0.05).start()
        with pytest.raises(Stopped):
            time.sleep(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("text", "seconds"), [("9m", 540.0), ("90s", 90.0), ("45", 45.0), ("1.5h", 5400.0)])
def test_times_are_said_as_people_say_them(text: str, seconds: float) -> None:
    asked = cli.build_parser().parse_args(["resume", "one", "--stop-after", text])
    assert asked.stop_after == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "-9m", "9 m", "nine", "9d", "1e3"])
def test_what_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.build_parser().parse_args(["resume", "one", f"--stop-after={text}"])
    assert "is no time" in capsys.readouterr().err


def test_a_run_in_slices_comes_to_its_end(tmp_path: Path) -> None:
    """Each slice ends with its own status, and one that is long enough with the report."""

    def agent(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.agent.synthetic_clock", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    where = ("--runs-dir", str(tmp_path / "runs"))
    target = ("--target", str(TASK.parent), "--entry", "bench.py", "--sandbox", "local", "--python", sys.executable)
    steps = ("--steps", "profile_baseline,fuse_projections", "--run-id", "one")
    first = agent("run", *target, *steps, *where, "--stop-after", "9s")
    assert first.returncode == 142, first.stderr
    assert "stopped, its time is over; `agent resume" in first.stderr
    last = agent("resume", "one", *where)
    assert last.returncode == 0, last.stderr
    assert [kept.step for kept in report.read(tmp_path / "runs" / "one").kept] == ["fuse_projections"]
