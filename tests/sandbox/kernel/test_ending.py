"""What is ended is dead when the call returns."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from sandbox.kernel import ending, process_tree


def test_it_is_dead_afterwards_even_if_it_was_stopped_and_what_cannot_be_ended_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        os.kill(sleeper.pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(ending, "kill", lambda pids: None)
            assert not ending.end([sleeper.pid], patience_s=0.01)
        assert ending.end([sleeper.pid])
        found = process_tree.stat(sleeper.pid)
        assert found is None or not found.alive
    assert ending.end([sleeper.pid])  # gone, which is no error
