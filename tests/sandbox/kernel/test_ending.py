"""What is ended is dead when the call returns."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from sandbox.kernel import ending, process_tree


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as running:
        yield running.pid
        running.kill()


def test_it_is_dead_afterwards_even_if_it_was_stopped(sleeper: int) -> None:
    os.kill(sleeper, signal.SIGSTOP)
    assert ending.end([sleeper])
    found = process_tree.stat(sleeper)
    assert found is None or not found.alive


def test_what_cannot_be_ended_is_not_waited_for_for_ever(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "kill", lambda pids: None)
    assert not ending.end([sleeper], patience_s=0.01)


def test_what_is_gone_is_no_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert ending.end([gone.pid])
