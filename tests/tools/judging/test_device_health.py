"""After a process has failed on a GPU nothing is judged there before the GPU works again; and who is to blame.

Without a GPU: the device's answers are made up, everything else is real. `test_device_fault.py` has a real one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command, Process
from sandbox.docker.engine import failure
from sandbox.errors import ContainmentNotHeld, DiskFull, EngineLost, SandboxError, SandboxUnavailable, Unusable
from tests.evals.arena import Arena
from tools.errors import DeviceLost, WorkloadError
from tools.judging.check import Checked, Checks
from tools.judging.clock import SideFault
from tools.judging.correctness import Finding
from tools.judging.device_health import DeviceHealth
from tools.judging.measure import LiveClock, Request
from tools.judging.worker import Build, WorkerFault


@dataclass(frozen=True)
class Ill(DeviceHealth):
    """A GPU that gives these answers, the last of them for ever."""

    patience_s: float = 0.5
    answers: list[str | None] = field(default_factory=lambda: [None])
    looks: list[str | None] = field(default_factory=list)

    def look(self) -> str | None:
        self.looks.append(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        return self.looks[-1]


@pytest.fixture
def ill(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Ill:
    made = Ill(arena.referee.setting, "cuda")
    monkeypatch.setattr("time.sleep", lambda s: None)
    monkeypatch.setattr(arena.referee, "health", made)
    return made


def test_the_look_finds_a_device_that_works_and_one_that_does_not(arena: Arena) -> None:
    assert DeviceHealth(arena.referee.setting, "cpu").look() is None
    lost = DeviceHealth(arena.referee.setting, "meta").look()  # a device that gives nothing back
    assert lost is not None
    slow = DeviceHealth(arena.referee.setting, "cpu", answer_s=0.01).look()
    assert slow is not None and "not answered" in slow
    assert list(arena.referee.setting.scratch.glob("health-*")) == []


def test_a_device_that_cannot_be_reached_is_no_fault_of_ours(arena: Arena) -> None:
    nowhere = replace(arena.referee.setting, python="/nowhere/python")
    said = DeviceHealth(nowhere, "cuda").look()
    assert said is not None and "/nowhere/python" in said


@dataclass
class Failing:
    """A sandbox that starts nothing."""

    error: SandboxError

    def start(self, command: Command) -> Process:
        raise self.error


NO_NODE = 'error gathering device information while adding custom device "/dev/kfd": no such file or directory'


@pytest.mark.parametrize(
    "error", [Unusable("exec", "it cannot be executed"), failure("start a container", NO_NODE)], ids=["start", "node"]
)
def test_a_start_that_fails_over_its_device_is_a_finding(arena: Arena, error: SandboxError) -> None:
    setting = replace(arena.referee.setting, sandbox=Failing(error))
    assert DeviceHealth(setting, "cuda").look() == str(error)


@pytest.mark.parametrize(
    "error",
    [
        DiskFull("the disk is full"),
        failure("create a container", "mkdir: no space left on device"),
        EngineLost("while it was asked"),
        SandboxUnavailable("it is gone"),
        ContainmentNotHeld("it sees devices that were not given"),
        SandboxError("the supervisor of a sandboxed command did not start"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_sandbox_that_fails_is_not_taken_for_a_lost_device(arena: Arena, error: SandboxError) -> None:
    setting = replace(arena.referee.setting, sandbox=Failing(error))
    begun = time.monotonic()
    with pytest.raises(type(error)) as caught:
        DeviceHealth(setting, "cuda").settle()
    assert caught.value is error and time.monotonic() - begun < 10
    assert list(setting.scratch.glob("health-*")) == []


def test_a_reset_is_waited_for_and_no_longer_than_that(ill: Ill, arena: Arena) -> None:
    ill.answers[:] = ["it resets", "it resets", None]
    arena.referee.health.settle()
    assert len(ill.looks) == 3
    ill.answers[:] = ["it fell off the bus"]
    with pytest.raises(DeviceLost, match="fell off the bus") as caught:
        arena.referee.health.settle()
    assert "resume" in caught.value.hint


def test_on_a_cpu_nothing_is_looked_at(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceHealth, "look", lambda self: pytest.fail("nothing is to be looked at"))
    DeviceHealth(arena.referee.setting, "cpu").settle()


def says(monkeypatch: pytest.MonkeyPatch, *answers: Finding | WorkloadError) -> list[str]:
    """The checks answer so, one after the other; returns the keys of what they were asked about."""
    asked: list[str] = []
    waiting = list(answers)

    def check(self: Checks, build: Build) -> Checked:
        asked.append(build.key)
        answer = waiting.pop(0)
        if isinstance(answer, WorkloadError):
            raise answer
        return Checked(answer, build)

    monkeypatch.setattr(Checks, "check", check)
    return asked


CANDIDATE = Build("candidate", Path("/nowhere"))
BROKEN, FINE = Finding("broken", "it died"), Finding(None, "")
ORIGINAL_FAILS = WorkloadError("bench.py dies")


def test_after_a_broken_candidate_the_device_is_looked_at(
    ill: Ill, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, BROKEN, FINE)
    assert arena.referee.check(CANDIDATE).finding is BROKEN
    assert len(ill.looks) == 1
    assert arena.referee.check(CANDIDATE).finding is FINE
    assert len(ill.looks) == 1


def test_an_original_that_a_fault_took_along_is_not_blamed(
    ill: Ill, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    pristine = arena.referee.pristine.key
    asked = says(monkeypatch, ORIGINAL_FAILS, FINE, ORIGINAL_FAILS)
    found = arena.referee.check(CANDIDATE).finding
    assert (found.verdict, asked) == ("broken", ["candidate", pristine, "candidate"])
    assert "runs by itself" in found.reason
    says(monkeypatch, ORIGINAL_FAILS, FINE, FINE)  # it was chance
    assert arena.referee.check(CANDIDATE).finding is FINE


def test_an_original_that_fails_by_itself_is(ill: Ill, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, ORIGINAL_FAILS, ORIGINAL_FAILS)
    with pytest.raises(WorkloadError):
        arena.referee.check(CANDIDATE)
    says(monkeypatch, ORIGINAL_FAILS)
    with pytest.raises(WorkloadError):
        arena.referee.check(arena.referee.pristine)


def test_a_fault_while_it_is_timed_is_followed_by_a_look_too(
    ill: Ill, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: LiveClock, request: Request, found: Any, outputs: Any) -> str:
        raise SideFault("candidate", WorkerFault("died", "an illegal memory access"))

    clock = arena.referee.clock
    assert isinstance(clock, LiveClock)
    monkeypatch.setattr(LiveClock, "_measure", failing)
    monkeypatch.setattr(clock, "settle", arena.referee.health.settle)
    request = Request("faulty", arena.incumbent, {"candidate": CANDIDATE}, bool)
    assert "illegal memory access" in clock.compare(request).only.broken
    assert len(ill.looks) == 1
    ill.answers[:] = ["it fell off the bus"]
    with pytest.raises(DeviceLost):
        clock.compare(request)
