"""A worker that others may have ended is no finding about the candidate before it ends the same way a second time."""

from __future__ import annotations

import os
import signal

import pytest

from sandbox.contract import Ended
from tests.evals.arena import Arena
from tools.judging.clock import SideFault, Tripwire
from tools.judging.measure import LiveClock, Request
from tools.judging.worker import Worker, WorkerFault


def kills(monkeypatch: pytest.MonkeyPatch, times: int, number: signal.Signals = signal.SIGKILL) -> list[int]:
    """Somebody outside ends the candidate before it is built, the first so many times; returns the pids."""
    killed: list[int] = []
    ask = Worker.ask

    def interrupted(self: Worker, *asked: str, **arguments: object) -> dict[str, object]:
        if self.build.key == "candidate" and asked == ("build",) and len(killed) < times:
            killed.append(self._process.members()[0])
            os.kill(killed[-1], number)
        return ask(self, *asked, **arguments)

    monkeypatch.setattr(Worker, "ask", interrupted)
    return killed


def test_in_a_check(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = arena.appended("candidate", "\n")
    killed = kills(monkeypatch, 1)
    assert arena.referee.check(candidate).finding.verdict is None
    assert len(killed) == 1
    killed = kills(monkeypatch, 2, signal.SIGTERM)
    assert arena.referee.check(candidate).finding.verdict == "broken"
    assert len(killed) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_when_it_is_timed(arena: Arena, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    measured = 0

    def failing(self: LiveClock, request: Request, found: object, outputs: object) -> None:
        nonlocal measured
        measured += 1
        if measured <= times:
            raise SideFault("candidate", WorkerFault("died", "it ended with signal 9", ended=ended(signal.SIGKILL)))

    monkeypatch.setattr(LiveClock, "_measure", failing)
    request = Request("killed", arena.incumbent, {"candidate": arena.incumbent}, bool)
    assert bool(arena.referee.clock.compare(request).only.broken) == (times == 2)
    assert measured == 2


def ended(number: int | None, status: int | None = None) -> Ended:
    return Ended(status, number, "signal" if number else "exited", "")


def test_its_own_doing_is_not_chance() -> None:
    assert WorkerFault("died", "", ended=ended(signal.SIGTERM)).may_be_chance
    assert not WorkerFault("died", "", ended=ended(signal.SIGSEGV)).may_be_chance
    assert not WorkerFault("died", "", ended=ended(None, 3)).may_be_chance
    assert not WorkerFault("out_of_memory", "", ended=ended(signal.SIGKILL)).may_be_chance
    assert not SideFault("candidate", Tripwire("it replaced the clock")).may_be_chance
