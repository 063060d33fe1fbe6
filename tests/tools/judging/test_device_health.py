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
from tools.judging.measure import ComparisonRequest, LiveClock
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


def test_the_look_tells_a_working_device_from_a_broken_one(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = arena.referee.setting
    assert DeviceHealth(setting, "cpu").look() is None
    assert DeviceHealth(setting, "meta").look() is not None, "a device that gives nothing back"
    assert "not answered" in (DeviceHealth(setting, "cpu", answer_s=0.01).look() or "")
    nowhere = replace(setting, python="/nowhere/python")
    assert "/nowhere/python" in (DeviceHealth(nowhere, "cuda").look() or "")
    assert list(setting.scratch.glob("health-*")) == []
    monkeypatch.setattr(DeviceHealth, "look", lambda self: pytest.fail("on a CPU nothing is to be looked at"))
    DeviceHealth(setting, "cpu").settle()


@dataclass
class Failing:
    """A sandbox that starts nothing."""

    error: SandboxError

    def start(self, command: Command) -> Process:
        raise self.error


NO_NODE = 'error gathering device information while adding custom device "/dev/kfd": no such file or directory'


@pytest.mark.parametrize(
    ("error", "of_the_device"),
    [
        (Unusable("exec", "it cannot be executed"), True),
        (failure("start a container", NO_NODE), True),
        (DiskFull("the disk is full"), False),
        (failure("create a container", "mkdir: no space left on device"), False),
        (EngineLost("while it was asked"), False),
        (SandboxUnavailable("it is gone"), False),
        (ContainmentNotHeld("it sees devices that were not given"), False),
        (SandboxError("the supervisor of a sandboxed command did not start"), False),
    ],
    ids=str,
)
def test_a_start_fails_over_its_device_or_otherwise(arena: Arena, error: SandboxError, of_the_device: bool) -> None:
    health = DeviceHealth(replace(arena.referee.setting, sandbox=Failing(error)), "cuda")
    if of_the_device:
        assert health.look() == str(error)
        return
    begun = time.monotonic()
    with pytest.raises(type(error)) as caught:
        health.settle()
    assert caught.value is error and time.monotonic() - begun < 10
    assert list(health.setting.scratch.glob("health-*")) == []


def test_a_reset_is_waited_for_and_no_longer_than_that(ill: Ill) -> None:
    ill.answers[:] = ["it resets", "it resets", None]
    ill.settle()
    assert len(ill.looks) == 3
    ill.answers[:] = ["it fell off the bus"]
    with pytest.raises(DeviceLost, match="fell off the bus") as caught:
        ill.settle()
    assert "resume" in caught.value.hint


CANDIDATE = Build("candidate", Path("/nowhere"))
BROKEN, FINE = Finding("broken", "it died"), Finding(None, "")
ORIGINAL_FAILS = WorkloadError("bench.py dies")


def says(monkeypatch: pytest.MonkeyPatch, *answers: Finding | WorkloadError) -> list[str]:
    """The checks answer so, one after the other; returns the keys of what they were asked about."""
    asked, waiting = list[str](), list(answers)

    def check(self: Checks, build: Build) -> Checked:
        asked.append(build.key)
        answer = waiting.pop(0)
        if isinstance(answer, WorkloadError):
            raise answer
        return Checked(answer, build)

    monkeypatch.setattr(Checks, "check", check)
    return asked


def test_a_broken_candidate_leads_to_a_look(ill: Ill, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, BROKEN, FINE)
    for finding in (BROKEN, FINE):
        assert arena.referee.check(CANDIDATE).finding is finding and len(ill.looks) == 1


def test_an_original_is_blamed_if_it_fails_by_itself(ill: Ill, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    pristine = arena.referee.pristine
    asked = says(monkeypatch, ORIGINAL_FAILS, FINE, ORIGINAL_FAILS)
    found = arena.referee.check(CANDIDATE).finding
    assert (found.verdict, asked) == ("broken", ["candidate", pristine.key, "candidate"])
    assert "runs by itself" in found.reason
    says(monkeypatch, ORIGINAL_FAILS, FINE, FINE)  # it was chance
    assert arena.referee.check(CANDIDATE).finding is FINE
    for build, answers in ((CANDIDATE, 2), (pristine, 1)):
        says(monkeypatch, *[ORIGINAL_FAILS] * answers)
        with pytest.raises(WorkloadError):
            arena.referee.check(build)


def test_a_fault_in_timing_leads_to_a_look(ill: Ill, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> str:
        raise SideFault("candidate", WorkerFault("died", "an illegal memory access"))

    clock: Any = arena.referee.clock
    monkeypatch.setattr(LiveClock, "_measure", failing)
    monkeypatch.setattr(clock, "settle", ill.settle)
    request = ComparisonRequest("faulty", arena.incumbent, {"candidate": CANDIDATE}, bool)
    assert "illegal memory access" in clock.compare(request).only.broken and len(ill.looks) == 1
    ill.answers[:] = ["it fell off the bus"]
    with pytest.raises(DeviceLost):
        clock.compare(request)
