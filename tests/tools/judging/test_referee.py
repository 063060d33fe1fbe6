"""The referee on a real target, where what it needs is scarce."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.evals.arena import Arena
from tools.errors import IncumbentFails
from tools.judging import check, clock, correctness, timed_outputs
from tools.judging.check import Checks
from tools.judging.clock import SideFault
from tools.judging.comparison import Comparison
from tools.judging.correctness import Compared
from tools.judging.measure import LiveClock, Request, Stopwatch, enough_for_noise
from tools.judging.timings import INCUMBENT
from tools.judging.worker import WorkerFault
from tools.judging.workload import Workload


def test_a_model_that_has_no_room_beside_another_is_checked_and_timed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workload, "fits", lambda self, copies: False)
    arena = Arena.open(tmp_path, sys.executable)
    cheat = arena.candidate("11_changed_inputs")
    try:
        assert arena.referee.check(arena.referee.pristine).finding.verdict is None
        assert arena.referee.check(cheat).finding.verdict == "wrong"
        request = Request("alone", arena.incumbent, {"candidate": arena.incumbent}, lambda ratios: bool(ratios))
        measured = arena.referee.clock.compare(request)
        assert measured.only.incumbent_us and measured.only.candidate_us and not measured.only.refused
    finally:
        arena.referee.close()


def test_an_incumbent_that_fails_once_is_timed_again_as_if_it_had_taken_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, measure, failures = Arena.open(tmp_path, sys.executable), LiveClock._measure, ["once"]
    taken = list[float]()

    def enough(ratios: Sequence[float], taken_s: float) -> bool:
        taken.append(taken_s)
        return True

    def failing_once(self: LiveClock, request: Request, found: dict[str, Comparison], outputs: Any) -> Any:
        if found and failures:
            stopwatch.begun -= 1e6
            raise SideFault(INCUMBENT, WorkerFault("died", failures.pop()))
        return measure(self, request, found, outputs)

    monkeypatch.setattr(LiveClock, "_measure", failing_once)
    stopwatch = Stopwatch(enough)
    request = Request("once", arena.incumbent, {"candidate": arena.incumbent}, stopwatch)
    try:
        measured = arena.referee.clock.compare(request).only
        assert (failures, measured.refused, len(measured.log_ratios)) == ([], "", 1)
        assert len(taken) == 1 and taken[0] < 1e6
    finally:
        arena.referee.close()


NESTED = """
import os

before = os.getcwd()
os.chdir(os.environ["HOME"])
for _ in range(5000):
    os.mkdir("d")
    os.chdir("d")
os.chdir(before)
"""


def test_what_a_worker_nests_beyond_all_depth_is_removed(tmp_path: Path) -> None:
    arena = Arena.open(tmp_path, sys.executable)
    try:
        assert arena.referee.check(arena.appended("nested", NESTED)).finding.verdict is None
        assert list(arena.referee.setting.scratch.glob("worker-*")) == []
    finally:
        arena.referee.close()


LED_AWAY = """
import os

out = os.path.join(os.environ["HOME"], "out")
os.rename(out, out + "-before")
os.symlink({elsewhere!r}, out)
"""


def test_a_worker_that_leads_its_folder_to_another_disk_is_refused(tmp_path: Path) -> None:
    arena = Arena.open(tmp_path, sys.executable)
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
            away = arena.appended("away", LED_AWAY.format(elsewhere=elsewhere))
            request = Request("away", arena.incumbent, {"candidate": away}, enough_for_noise("cpu"))
            assert "did not save" in arena.referee.clock.compare(request).only.refused
    finally:
        arena.referee.close()


FAILS_LATE = """
import os

plain, calls = Model.forward, []


def forward(self, *arguments):
    calls.append(1)
    return plain(self, *arguments) if len(calls) < 9 else os._exit(1)


Model.forward = forward
"""


@pytest.mark.slow
def test_an_incumbent_that_fails_is_told_and_one_that_fails_only_beside_a_candidate_is_held_against_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena.open(tmp_path, sys.executable)
    late = arena.appended("late", FAILS_LATE)
    try:
        with pytest.raises(IncumbentFails, match="exit status 1"):
            arena.referee.clock.compare(Request("late", late, {"candidate": arena.incumbent}, enough_for_noise("cpu")))
        measure = LiveClock._measure

        def failing_beside(self: LiveClock, request: Request, found: dict[str, Comparison], outputs: Any) -> str:
            if found:
                raise SideFault(INCUMBENT, WorkerFault("died", "it ended"))
            return measure(self, request, found, outputs)

        monkeypatch.setattr(LiveClock, "_measure", failing_beside)
        request = Request("beside", arena.incumbent, {"candidate": late}, enough_for_noise("cpu"))
        assert "the incumbent fails" in arena.referee.clock.compare(request).only.refused
        with pytest.raises(IncumbentFails, match="beside its own copy"):
            arena.referee.measure_noise()
    finally:
        arena.referee.close()


def test_room_is_what_the_device_has_less_a_margin() -> None:
    def workload(peak_bytes: int, device_bytes: int) -> Workload:
        environment = {"device": "cuda", "gpu_memory_bytes": device_bytes}
        found = object.__new__(Workload)
        found.__dict__.update(environment=environment, peak_bytes=peak_bytes)
        return found

    assert workload(40, 100).fits(2)
    assert not workload(45, 100).fits(2)
    assert workload(10**12, 0).fits(9), "a CPU's memory is not asked"


def test_parts_of_what_was_returned_are_looked_at_at_once_where_device_and_disk_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1 << 40
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    setting: Any = SimpleNamespace(scratch=tmp_path)

    def at_once(device: str, copies: int) -> int:
        workload: Any = SimpleNamespace(device=device, fits=lambda wanted: wanted <= copies)
        return timed_outputs._at_once(setting, workload)

    assert [at_once("cuda", 12), at_once("cuda", 8), at_once("cuda", 4), at_once("cpu", 12)] == [3, 2, 1, 1]
    free = 20 << 30
    assert at_once("cuda", 12) == 1


def test_what_takes_long_for_each_input_of_a_shape_is_not_prepared_to_be_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, takes = Arena.open(tmp_path, sys.executable), list[float]()
    monkeypatch.setattr(Checks, "_call_s", lambda *_: takes.pop(0))
    build = replace(arena.incumbent, cache=None)
    try:
        takes[:] = [300.0, 200.0, 0.1] * 2  # once more for other sizes, under each of two state dicts
        assert arena.referee.fill(build).cache is not None and not takes
        takes[:] = [300.0, 200.0, 100.0]
        with pytest.raises(WorkerFault, match="calls of one shape took 300 s, 200 s, 100 s") as fault:
            arena.referee.fill(build)
        assert fault.value.kind == "compiles_again"
    finally:
        arena.referee.close()


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
def test_a_change_that_takes_long_for_each_new_input_is_not_waited_for_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena.open(tmp_path, sys.executable)
    monkeypatch.setattr(check, "AGAIN_S", 0.3)
    try:
        found = arena.referee.check(arena.appended("always", TAKES_LONG.format(new=INPUT))).finding
        assert found.verdict == "broken" and "calls of one shape took" in found.reason
        assert found.reason.rpartition("took")[2].count(" s") == 3, "no more of them were waited for"
        again = TAKES_LONG.format(new=STATE).replace("not in seen", "not in seen[:1]")
        assert arena.referee.check(arena.appended("constants", again)).finding.verdict is None, "for a state it may"
    finally:
        arena.referee.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_large_outputs_of_timed_calls_are_compared_one_after_the_other_and_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, there = Arena.open(tmp_path, sys.executable), list[tuple[int, int]]()
    judged = correctness._one_call

    def counting(call: Compared, *rest: Any) -> None:
        inside = [path.name.split("-")[0] for path in call.truth.parent.iterdir()]
        there.append((inside.count("baseline"), inside.count("truth")))
        judged(call, *rest)

    monkeypatch.setattr(correctness, "_one_call", counting)
    monkeypatch.setattr(clock, "SAMPLES", 10**6)  # of each round one is kept
    request = Request("twice", arena.incumbent, {"candidate": arena.incumbent}, lambda ratios: len(ratios) == 1)
    try:
        outputs = arena.referee.clock.compare(request).outputs
        finding = arena.referee.check_timed(outputs)
        assert (finding.verdict, finding.evidence["calls"]) == (None, len(outputs)) and len(outputs) > 1
        assert there == [(left, 1) for left in range(len(outputs), 0, -1)]
        there.clear()
        monkeypatch.setattr(timed_outputs, "PART_BYTES", 1)
        in_parts = arena.referee.check_timed(outputs)
        assert (in_parts.verdict, in_parts.evidence) == (None, finding.evidence)
        assert there == [(1, 1)] * len(outputs)
        monkeypatch.setattr(timed_outputs, "_at_once", lambda setting, workload: 2)
        at_once = arena.referee.check_timed(outputs)
        assert (at_once.verdict, at_once.evidence) == (None, finding.evidence)
        kept = outputs[-1].output
        shutil.copyfile(outputs[0].output, kept)
        assert arena.referee.check_timed(outputs).verdict == "refused", "of the last part as well"
    finally:
        arena.referee.close()
