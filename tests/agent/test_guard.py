"""However a command ends: one message, the right status, and what to do next."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import guard
from agent.errors import RunInUse
from agent.guard import Doing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """What a command does with its signals must not outlive the test."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def ends_with(error: BaseException, run_dir: Path | None = None, *, debug: bool = False) -> int:
    def handler(arguments: Namespace, doing: Doing) -> int:
        doing.run_dir, doing.reference = run_dir, "my-run"
        raise error

    return guard.call(handler, Namespace(debug=debug), "agent")


def test_an_error_of_ours_is_told_with_its_hint_and_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(RunInUse("It is in use.", hint="Wait for it.")) == RunInUse.exit_status
    assert capsys.readouterr() == ("", "agent: It is in use.\n  Wait for it.\n")


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(KeyboardInterrupt(), tmp_path) == 130
    assert capsys.readouterr().err == "agent: interrupted; `agent resume my-run` goes on from there\n"


def test_nothing_is_offered_to_resume_before_there_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(KeyboardInterrupt(), tmp_path / "not-made-yet") == 130
    assert "resume" not in capsys.readouterr().err


def test_a_fault_of_ours_is_called_one_and_keeps_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(ZeroDivisionError("oh"), tmp_path) == 70
    told = capsys.readouterr().err
    assert "a fault of Ratchet, not of your target: ZeroDivisionError: oh" in told and "Traceback (most" not in told
    (kept,) = tmp_path.glob("fault-*.txt")
    assert str(kept) in told and "Traceback (most recent call last)" in kept.read_text()


def test_debug_shows_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(ZeroDivisionError("oh"), tmp_path, debug=True) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_not_a_fault_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(OSError(errno.ENOSPC, "No space left on device", "/data/ledger.jsonl")) == 32
    assert "The disk is full while writing /data/ledger.jsonl" in capsys.readouterr().err


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
