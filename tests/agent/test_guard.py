"""However a command ends: one message, the right status, and what to do next."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from agent import guard
from agent.errors import RunInUse
from agent.guard import Doing
from tests.agent.whole_runs import handlers_kept

ROOT = Path(__file__).resolve().parents[2]


def ends_with(error: BaseException, run_dir: Path | None = None, *, debug: bool = False) -> int:
    def handler(arguments: Namespace, doing: Doing) -> int:
        doing.run_dir, doing.reference = run_dir, "my-run"
        raise error

    with handlers_kept():
        return guard.call(handler, Namespace(debug=debug), "agent")


def stopped_and(error: Exception) -> Exception:
    """This error as it is when it was raised while a stop was being handled."""
    error.__context__ = ValueError("in between")
    error.__context__.__context__ = guard.Stopped(signal.SIGTERM)
    return error


FREE_SOME = "Free some space; what was proven is kept and the run can be resumed."
NO_SPACE = OSError(errno.ENOSPC, "No space left on device", "/data/ledger.jsonl")


@pytest.mark.parametrize(
    ("error", "run_dir", "status", "said"),
    [
        (RunInUse("It is in use.", hint="Wait for it."), "gone", RunInUse.exit_status, "It is in use.\n  Wait for it."),
        (KeyboardInterrupt(), "", 130, "interrupted; `agent resume my-run` goes on from there"),
        (KeyboardInterrupt(), "not-made-yet", 130, "interrupted"),
        (stopped_and(OSError(errno.ENOTEMPTY, "Directory not empty")), "not-made-yet", 143, "interrupted"),
        (
            NO_SPACE,
            "gone",
            32,
            f"The disk is full while writing {NO_SPACE.filename}.\n  {FREE_SOME}",
        ),
    ],
)
def test_an_end_is_told_in_one_message_with_its_status(
    error: BaseException, run_dir: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(error, tmp_path / run_dir) == status
    assert capsys.readouterr() == ("", f"agent: {said}\n")


def test_what_fails_while_it_is_being_stopped_is_the_stop() -> None:
    """So that what was proven is handed over, and a budget that is used up ends with a result."""
    failed = stopped_and(OSError(errno.ENOTEMPTY, "Directory not empty"))
    with pytest.raises(guard.Stopped) as stop, guard.stop_first():
        raise failed
    assert stop.value.__cause__ is failed
    for failed, cause in ((ZeroDivisionError(), None), (stopped_and(ZeroDivisionError()), None)):
        with pytest.raises(ZeroDivisionError), guard.stop_first():
            raise failed from cause


def test_a_fault_of_ours_is_called_one_and_keeps_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(ZeroDivisionError("oh"), tmp_path) == 70
    told = capsys.readouterr().err
    assert "a fault of Ratchet, not of your target: ZeroDivisionError: oh" in told and "Traceback (most" not in told
    (kept,) = tmp_path.glob("fault-*.txt")
    assert str(kept) in told and "Traceback (most recent call last)" in kept.read_text()
    kept.unlink()
    assert ends_with(ZeroDivisionError("oh"), tmp_path, debug=True) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_unwinds_the_command_in_order(number: signal.Signals, status: int) -> None:
    code = f"""
import os, sys
from argparse import Namespace
from agent import guard
def handler(arguments, doing):
    try:
        os.kill(os.getpid(), {int(number)})
        while True: pass
    finally:
        print("cleaned up", flush=True)
sys.exit(guard.call(handler, Namespace(), "agent"))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (status, "cleaned up\n")


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    code = """
import sys
from argparse import Namespace
from agent import guard
def handler(arguments, doing):
    while True: print("line")
sys.exit(guard.call(handler, Namespace(), "agent"))
"""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (141, b"")
