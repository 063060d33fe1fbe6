"""The referee on a real target: where room is scarce, where workers fail, and where they were ended by others."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Ended
from tests.evals.arena import Arena
from tools.errors import IncumbentFails
from tools.judging import check, clock, correctness, player, tensors, timed_outputs
from tools.judging.check import Checks
from tools.judging.clock import DidNotHoldStill, SideFault, TimedOutput, Tripwire
from tools.judging.comparison import INCUMBENT, Comparison
from tools.judging.correctness import Compared
from tools.judging.digest import digest
from tools.judging.measure import ComparisonRequest, LiveClock, Measured
from tools.judging.worker import Build, Worker, WorkerFault
from tools.judging.workload import Workload


def compared(arena: Arena, incumbent: Build, candidate: Build, restarts: int = 1) -> Measured:
    request = ComparisonRequest(
        "once", incumbent, {"candidate": candidate}, lambda found: len(found.log_ratios) >= restarts
    )
    return arena.referee.clock.compare(request)


@pytest.mark.slow
def test_a_model_without_room_beside_another_is_judged_too(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "fits", lambda self, copies, peak_bytes=0: False)
    assert arena.referee.check(arena.referee.pristine).finding.verdict is None
    assert arena.check("11_changed_inputs").verdict == "wrong"
    measured = compared(arena, arena.incumbent, arena.incumbent).only
    assert measured.incumbent_us and measured.candidate_us and not measured.refused


LED_AWAY = """
import os

out = os.path.join(os.environ["HOME"], "out")
os.rename(out, out + "-before")
os.symlink({elsewhere!r}, out)
"""


def test_a_worker_that_leads_its_folder_to_another_disk_is_refused(arena: Arena) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        away = arena.appended("away", LED_AWAY.format(elsewhere=elsewhere))
        assert "did not save" in compared(arena, arena.incumbent, away, restarts=12).only.refused


FAILS_LATE = """
import os

plain, calls = Model.forward, []

def forward(self, *arguments):
    calls.append(1)
    return plain(self, *arguments) if len(calls) < 9 else os._exit(1)

Model.forward = forward
"""


@pytest.mark.slow
def test_who_is_blamed_for_an_incumbent_that_fails(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    late = arena.appended("late", FAILS_LATE)
    with pytest.raises(IncumbentFails, match="exit status 1"):
        compared(arena, late, arena.incumbent)
    measure, failures = LiveClock._measure, 1

    def failing_beside(self: LiveClock, request: ComparisonRequest, found: dict[str, Comparison], outputs: Any) -> Any:
        nonlocal failures
        if found and failures:
            failures -= 1
            raise SideFault(INCUMBENT, WorkerFault("died", "it ended"))
        return measure(self, request, found, outputs)

    monkeypatch.setattr(LiveClock, "_measure", failing_beside)
    once = compared(arena, arena.incumbent, arena.incumbent).only
    assert (failures, once.refused, len(once.log_ratios)) == (0, "", 1), "timed again"
    failures = 99
    assert "the incumbent fails" in compared(arena, arena.incumbent, late).only.refused
    with pytest.raises(IncumbentFails, match="beside its own copy"):
        arena.referee.measure_noise()


def test_room_is_what_the_device_has_less_a_margin() -> None:
    def workload(peak_bytes: int, device_bytes: int) -> Workload:
        found = object.__new__(Workload)
        found.__dict__.update(environment={"gpu_memory_bytes": device_bytes}, peak_bytes=peak_bytes)
        return found

    assert workload(40, 100).fits(2) and not workload(45, 100).fits(2)
    assert workload(10**12, 0).fits(9), "a CPU's memory is not asked"


# -- a worker that others may have ended: no finding before it ends the same way a second time


def kills(monkeypatch: pytest.MonkeyPatch, times: int, number: signal.Signals) -> list[int]:
    """Somebody outside ends the candidate before it is built, the first so many times; returns the pids."""
    killed: list[int] = []
    ask = Worker.ask

    def interrupted(self: Worker, *asked: str, **arguments: Any) -> dict[str, Any]:
        if self.build.key.startswith("killed") and asked == ("build",) and len(killed) < times:
            ask(self, "collect")  # it is there
            killed.append(self.process.members()[0])
            os.kill(killed[-1], number)
        return ask(self, *asked, **arguments)

    monkeypatch.setattr(Worker, "ask", interrupted)
    return killed


def test_a_killed_worker_is_checked_again(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = arena.appended("killed", "\n")
    killed = kills(monkeypatch, 1, signal.SIGKILL)
    assert arena.referee.check(candidate).finding.verdict is None and len(killed) == 1
    killed = kills(monkeypatch, 2, signal.SIGTERM)
    assert arena.referee.check(candidate).finding.verdict == "broken" and len(killed) == 2


def test_what_draws_the_inputs_may_have_ended_with_something_else(arena: Arena) -> None:
    with arena.referee.supply.opened():
        drawing = arena.referee.supply._reference
    assert drawing is not None
    os.kill(drawing.process.members()[0], signal.SIGKILL)
    assert arena.referee.check(arena.incumbent).finding.verdict is None
    assert arena.referee.supply._reference not in (None, drawing)


def ended(number: int | None, status: int | None = None) -> Ended:
    return Ended(status, number, "signal" if number else "exited", "")


@pytest.mark.parametrize("times", [1, 2])
def test_a_killed_worker_is_timed_again(arena: Arena, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    measured = 0

    def failing(*_: object) -> None:
        nonlocal measured
        measured += 1
        if measured <= times:
            raise SideFault("candidate", WorkerFault("died", "it ended with signal 9", ended=ended(signal.SIGKILL)))

    monkeypatch.setattr(LiveClock, "_measure", failing)
    assert bool(compared(arena, arena.incumbent, arena.incumbent).only.broken) == (times == 2)
    assert measured == 2


def test_its_own_doing_is_not_chance() -> None:
    assert WorkerFault("died", "", ended=ended(signal.SIGTERM)).may_be_chance
    for kind, how in (("died", ended(signal.SIGSEGV)), ("died", ended(None, 3)), ("out_of_memory", ended(9))):
        assert not WorkerFault(kind, "", ended=how).may_be_chance
    assert not SideFault("candidate", Tripwire("it replaced the clock")).may_be_chance
    assert SideFault("candidate", DidNotHoldStill("it ran for 1.3 ms while it was stopped")).may_be_chance


# -- what compiles itself for each input


def test_what_is_slow_for_each_input_of_a_shape_is_not_filled(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    takes, build = list[float](), replace(arena.incumbent, cache=None)
    monkeypatch.setattr(Checks, "_call_s", lambda *_: takes.pop(0))
    takes[:] = [300.0, 200.0, 0.1] * 2  # once more for other sizes, under each of two state dicts
    assert arena.referee.fill(build).cache is not None and not takes
    takes[:] = [300.0, 200.0, 100.0]
    with pytest.raises(WorkerFault, match="calls of one shape took 300 s, 200 s, 100 s") as fault:
        arena.referee.fill(build)
    assert fault.value.kind == "compiles_again"


TAKES_LONG = """
import time

plain, seen = Model.forward, []

def forward(self, rows):
    new = {new}
    if new not in seen:
        seen[:0] = [new]
        time.sleep(0.5)
    return plain(self, rows)

Model.forward = forward
"""
INPUT, STATE = "float(rows.sum())", "float(sum(weight.sum() for weight in self.parameters()))"


@pytest.mark.slow
def test_a_change_that_is_slow_for_each_input_is_ended_early(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "AGAIN_S", 0.3)
    found = arena.referee.check(arena.appended("always", TAKES_LONG.format(new=INPUT))).finding
    assert found.verdict == "broken" and "calls of one shape took" in found.reason
    assert found.reason.rpartition("took")[2].count(" s") == 3, "no more of them were waited for"
    again = TAKES_LONG.format(new=STATE).replace("not in seen", "not in seen[:1]")
    assert arena.referee.check(arena.appended("constants", again)).finding.verdict is None, "for a state it may"


# -- the outputs of timed calls


@pytest.mark.timeout(600)
def test_all_outputs_of_timed_calls_are_compared_in_turn(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    there, judged = list[tuple[int, int]](), correctness._one_call

    def counting(call: Compared, *rest: Any) -> None:
        inside = [path.name.split("-")[0] for path in call.truth.parent.iterdir()]
        there.append((inside.count("baseline"), inside.count("truth")))
        judged(call, *rest)

    monkeypatch.setattr(correctness, "_one_call", counting)
    monkeypatch.setattr(clock, "SAMPLES", 10**6)  # of each round one is kept
    outputs = compared(arena, arena.incumbent, arena.incumbent).outputs
    finding = arena.referee.check_timed(outputs)
    assert (finding.verdict, finding.evidence["calls"]) == (None, len(outputs)) and len(outputs) > 1
    assert there == [(left, 1) for left in range(len(outputs), 0, -1)]
    there.clear()
    monkeypatch.setattr(timed_outputs, "PART_BYTES", 1)
    in_parts = arena.referee.check_timed(outputs)
    assert (in_parts.verdict, in_parts.evidence) == (None, finding.evidence)
    assert there == [(1, 1)] * len(outputs)
    kept = outputs[-1].output
    shutil.copyfile(outputs[0].output, kept)
    assert arena.referee.check_timed(outputs).verdict == "refused", "of the last part as well"


FEWER_ROWS = {"tensors.py": [("PLACES = 64", "PLACES = 4")]}


def test_of_large_outputs_secretly_chosen_rows_are_compared(
    arena: Arena, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    asked, judged = list[Compared](), correctness._one_call
    setting = arena.with_guest(tmp_path, FEWER_ROWS).referee.setting

    def seeing(call: Compared, *rest: Any) -> None:
        asked.append(call)
        for each in (call.baseline, call.truth):
            assert [leaf.shape for leaf in tensors.read(each).leaves] == [(6, 256)], "it has no others"
        judged(call, *rest)

    monkeypatch.setattr(correctness, "_one_call", seeing)
    monkeypatch.setattr(timed_outputs, "COMPARED_BYTES", 4 * 256 * 4)
    monkeypatch.setattr(clock, "SAMPLES", 10**6)
    outputs = compared(arena, arena.incumbent, arena.incumbent).outputs
    supply = replace(arena.referee.supply, setting=setting, _reference=None)
    request.addfinalizer(supply.close)
    referee = replace(arena.referee, supply=supply)
    assert referee.check_timed(outputs).verdict is None
    assert len({str(call.rows) for call in asked}) > len(asked) // 2
    assert all({0, 31} < {*call.rows[0][2]} for call in asked), "the first and the last are"
    less = list[TimedOutput]()
    for each in outputs:  # without its last quarter, and committed to that
        data = each.output.read_bytes()
        each.output.write_bytes(data[: -8 * 256 * 4] + bytes(8 * 256 * 4))
        less.append(replace(each, commitment=(1, digest(tensors.read(each.output).leaves, 1))))
    assert referee.check_timed(less).verdict == "wrong"


@pytest.mark.parametrize(("change", "verdict"), [("out * 1", None), ("torch.cat((out[:-1], out[-1:] * 1.1))", "wrong")])
def test_the_check_compares_rows_of_large_outputs(
    change: str, verdict: str | None, arena: Arena, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arena = arena.with_guest(tmp_path, FEWER_ROWS)
    monkeypatch.setattr(player, "COMPARED_BYTES", 4 * 256 * 4)
    checked = arena.referee.check(arena.appended(f"rows-{verdict}", IN_ROWS % change))
    assert checked.finding.verdict == verdict, checked.finding.reason


IN_ROWS = """
import torch

_before = Model.forward

def _forward(self, *given):
    out = _before(self, *given)
    return %s

Model.forward = _forward
"""
