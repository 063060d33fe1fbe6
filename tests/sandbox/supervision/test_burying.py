"""A command that has ended is cleared away once, whatever interrupts that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command
from sandbox.local.provider import LocalSandbox
from sandbox.supervision.process import SupervisedProcess

SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")


class Interrupted:
    """The first call is interrupted, as by Ctrl-C; later ones are not."""

    def __init__(self, call: Any, *, after: bool) -> None:
        self.call, self.after, self.count = call, after, 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.count += 1
        if self.count > 1:
            return self.call(*arguments, **named)
        if self.after:
            self.call(*arguments, **named)
        raise KeyboardInterrupt


@pytest.fixture
def process(tmp_path: Path) -> SupervisedProcess:
    sandbox = LocalSandbox(sys.executable, tmp_path / "scratch")
    return sandbox.start(Command(argv=SLEEPS, cwd=tmp_path, role="worker"))


@pytest.mark.parametrize("after", [True, False])
def test_who_is_interrupted_while_waiting_for_the_supervisor_can_stop_it_again(
    after: bool, process: SupervisedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = process._supervisor._popen
    monkeypatch.setattr(popen, "wait", Interrupted(popen.wait, after=after))
    with pytest.raises(KeyboardInterrupt):
        process.stop()
    ended = process.stop()
    assert ended.reason == "stopped" and process.poll() == ended == process.wait(0.0)
    assert [*(tmp_path / "scratch" / "records").iterdir()] == []
    process._supervisor.dismiss(5.0)


def test_what_is_left_is_cleared_away_though_its_groups_cannot_be(
    process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = process._groups.close
    monkeypatch.setattr(type(process._groups), "close", Interrupted(lambda: close(), after=True))
    with pytest.raises(KeyboardInterrupt):
        process.stop()
    assert process._listener.fileno() < 0
    assert process.stop().reason == "stopped"
    process._filed.forget()
