"""Which lines of torch.compile the stack is compared with: the best, and those a screen cannot tell from it."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.guard import Stopped
from agent.records import measurements
from agent.records.measurements import SessionStart
from agent.steps import profile_baseline
from tests.agent.one_context import one_context
from tests.tools.judging.compared import compared
from tools.judging.check import Checked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.measure import ComparisonRequest, Measured
from tools.judging.own_tests import OwnTests
from tools.judging.worker import Build, WorkerFault

PRISTINE = Build("pristine", Path("/nowhere"))
FAULTS = {0.0: "compiles_again", -1.0: "hangs", -2.0: "died"}  # of a mode, in place of its gain


class Referee:
    """Fills nothing, and times by a table of speedups; some modes answer wrongly when their outputs are looked at.

    Without a gain a mode cannot be compiled.
    """

    delta = 0.02

    def __init__(self, gains: Mapping[str, float], wrong: tuple[str, ...]) -> None:
        self.gains, self.wrong, self.clock = gains, wrong, self
        self.asked: list[tuple[str, list[str]]] = []

    def fill(self, build: Build) -> Build:
        if kind := FAULTS.get(self.gains[build.key]):
            raise WorkerFault(kind, "it cannot be compiled")
        return build

    def compare(self, request: ComparisonRequest) -> Measured:
        self.asked.append((request.purpose, sorted(request.candidates)))
        return Measured({name: self._comparison(request, name) for name in request.candidates})

    def _comparison(self, request: ComparisonRequest, name: str) -> Comparison:
        found = request.blank(name)
        if math.isnan(self.gains[name]):
            found.broken = "it does not run"
        while not request.enough(found):
            found.case_log_ratios.append([math.log(self.gains[name])])
        return found

    def check_timed(self, outputs: object) -> Finding:
        confirmed = self.asked[-1][1]
        wrong = [mode for mode in confirmed if mode in self.wrong]
        return Finding("wrong", "its outputs are wrong") if wrong else Finding(None, "")


def measured(
    run_dir: Path,
    gains: Mapping[str, float],
    wrong: tuple[str, ...] = (),
    end_running: Callable[[], None] = lambda: None,
    later: Sequence[Callable[[Any], object]] = (),
    rocm: bool = False,
) -> tuple[SessionStart, Referee]:
    referee = Referee(gains, wrong)
    (run_dir / "session").mkdir(parents=True, exist_ok=True)
    builds = {mode: Build(mode, Path("/nowhere")) for mode in gains}
    ctx = one_context(
        run_dir=run_dir,
        referee=referee,
        filled=referee.fill,
        compile_baselines=builds,
        compile_baseline=builds.__getitem__,
        pristine_checked=lambda: Checked(Finding(None, ""), PRISTINE),
        workload=SimpleNamespace(fits=lambda copies: True),
        platform=SimpleNamespace(device="cuda", rocm=rocm),
        progress=SimpleNamespace(emit=lambda event: None),
        say=lambda *said: None,
        end_running=end_running,
        subject="",
    )
    found = SessionStart(aa=compared([]), own_tests=OwnTests(note="none"))
    profile_baseline.measure_modes(ctx, found)
    measurements.keep_session(found, run_dir)
    for late in later:
        late(ctx)
    return measurements.session_start(run_dir) or found, referee


@pytest.mark.parametrize(
    ("gains", "in_full", "only_screened"),
    [
        ({"default": 2.0, "reduce-overhead": 5.0, "max-autotune": 5.2}, ["max-autotune", "reduce-overhead"], "default"),
        ({"default": 1.05, "max-autotune": 1.001}, ["default"], "max-autotune"),  # it may not pay
        ({"default": 0.8, "max-autotune": 0.7}, ["default"], "max-autotune"),
        ({"default": 3.0}, ["default"], None),
        ({}, [], None),
    ],
)
def test_only_what_is_near_the_best_in_a_screen_is_measured_in_full_and_one_mode_needs_no_screen(
    gains: dict[str, float], in_full: list[str], only_screened: str | None, tmp_path: Path
) -> None:
    found, referee = measured(tmp_path, gains)
    screens = [("baselines screened", sorted(gains))] if only_screened else []
    assert referee.asked == screens + [("baselines", in_full)] * bool(gains)
    assert sorted(found.compile) == in_full and found.best_compile() == max(gains, key=gains.__getitem__, default="")
    if only_screened:
        assert len(found.compile_screened[only_screened].log_ratios) < len(found.compile[in_full[0]].log_ratios)


def test_a_run_that_goes_on_screens_no_modes_again_and_knows_what_broke_the_graphs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gains = {"default": 5.1, "max-autotune": 5.2}
    assert measured(tmp_path / "uncounted", gains)[0].compile_breaks is None
    with monkeypatch.context() as counted:
        counted.setattr(Referee, "fill", lambda self, build: replace(build, graph_breaks=len(build.key)))
        first, _ = measured(tmp_path / "run", gains)
    again, referee = measured(tmp_path / "run", gains)  # of caches that were kept nobody counts it again
    assert again == first and again.compile_breaks == 12
    assert [purpose for purpose, _ in referee.asked] == ["baselines"]


@pytest.mark.parametrize(("wrong", "confirmed"), [((), "max-autotune"), (("max-autotune",), "default")])
def test_a_best_mode_that_plainly_pays_is_measured_in_full_when_nothing_was_kept_and_the_next_where_it_is_wrong(
    wrong: tuple[str, ...], confirmed: str, tmp_path: Path
) -> None:
    gains = {"default": 2.0, "max-autotune": 5.2}
    found, referee = measured(tmp_path / "first", gains, wrong)
    assert found.compile == {} and found.best_compile() == "max-autotune" and found.compile_pays(0.02)
    assert [purpose for purpose, _ in referee.asked] == ["baselines screened"]
    found, referee = measured(tmp_path / "whole", gains, wrong, later=[profile_baseline.confirm_best] * 2)
    assert set(found.compile) == {confirmed}
    assert set(found.compile_screened) == (set() if wrong else {"default"})
    assert found.compile_failed == dict.fromkeys(wrong, "its outputs are wrong")
    assert [modes for _, modes in referee.asked[1:]] == [["max-autotune"], *([["default"]] if wrong else [])], "once"


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_taken_from_beside_the_whole_stack(fails: bool, tmp_path: Path) -> None:
    def whole(ctx: Any) -> None:
        request = ComparisonRequest("whole stack", PRISTINE, {"stack": PRISTINE, "max-autotune": PRISTINE}, bool)
        mode = compared([1.6] * 6, broken="it died" if fails else "")
        beside = Measured({"stack": request.blank("stack"), "max-autotune": mode})
        session = measurements.session_start(ctx.run_dir)
        assert session is not None
        ctx.referee.asked.append(("whole stack", []))  # whose outputs are looked at
        assert profile_baseline.take_beside(ctx, session, "max-autotune", beside) is not fails

    found, _ = measured(tmp_path, {"default": 2.0, "max-autotune": 5.2}, later=[whole])
    assert set(found.compile) == (set() if fails else {"max-autotune"})
    assert found.compile_failed == ({"max-autotune": "it died"} if fails else {})
    assert found.best_compile() == ("default" if fails else "max-autotune")


@pytest.mark.parametrize(
    ("gains", "tuning", "recording"),
    [
        ({"default": 2.0, "reduce-overhead": 5.0, "max-autotune": 5.2}, True, True),
        ({"default": 2.0, "max-autotune-no-cudagraphs": 5.2}, True, False),
        ({"default": 5.15, "max-autotune": 5.2}, False, False),
        ({"default": 5.2, "max-autotune": 2.0}, False, False),
        ({"default": 2.0, "reduce-overhead": 5.0, "max-autotune": 1.2}, False, True),
        ({"default": 5.0, "reduce-overhead": 5.05}, False, False),
        ({"max-autotune": 5.2}, False, False),
        ({"default": 5.2}, False, False),
    ],
)
def test_tuning_pays_where_it_beats_every_other_mode_and_recording_where_it_beats_one_that_does_not_record(
    gains: dict[str, float], tuning: bool, recording: bool, tmp_path: Path
) -> None:
    found = measured(tmp_path, gains)[0]
    assert (found.tuning_pays(delta=0.02), found.recording_pays(delta=0.02)) == (tuning, recording)


def test_who_stops_while_modes_compile_gets_what_they_have_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not all of it: their processes are ended first, and what has not begun does not begin."""
    begun, ended_ours, put_away = threading.Event(), threading.Event(), list[str]()

    def fill(self: Referee, build: Build) -> Build:
        begun.set()
        assert ended_ours.wait(60)
        put_away.append(build.key)
        raise WorkerFault("died", "it ended with signal 9")

    waits = iter([Stopped(signal.SIGTERM)])

    def wait(filling: Collection[Future[Build]], timeout: float | None = None, **how: str) -> object:
        assert begun.wait(10)
        for stop in waits:
            raise stop
        return futures.wait(filling, timeout, **how)

    monkeypatch.setattr(Referee, "fill", fill)
    monkeypatch.setattr(profile_baseline, "wait", wait)
    monkeypatch.setattr(profile_baseline, "_side_by_side", lambda ctx, builds: 1)
    with pytest.raises(Stopped):
        measured(tmp_path, {"default": 2.0, "max-autotune": 5.2}, end_running=ended_ours.set)
    assert put_away == ["max-autotune"]


@pytest.mark.parametrize("rocm", [False, True])
def test_on_rocm_tuning_begins_when_all_else_is_compiled(
    monkeypatch: pytest.MonkeyPatch, rocm: bool, tmp_path: Path
) -> None:
    said, tuning = list[str](), threading.Event()

    def fill(self: Referee, build: Build) -> Build:
        if build.key.startswith("max-autotune"):
            tuning.set()
            raise WorkerFault("hangs", "it never answers")
        assert tuning.wait(0.2 if rocm else 60) is not rocm
        said.append(build.key)
        return build

    monkeypatch.setattr(Referee, "fill", fill)
    gains = {"default": 2.0, "reduce-overhead": 1.5, "max-autotune-no-cudagraphs": 5.2}
    found, _ = measured(tmp_path, gains, rocm=rocm)
    assert sorted(said) == ["default", "reduce-overhead"] and found.best_compile() == "default"
    assert found.compile_failed == {"max-autotune-no-cudagraphs": "it never answers"} and not found.compile_endless


@pytest.mark.parametrize(
    ("gains", "endless"),
    [
        ({"default": 0.0, "max-autotune": 0.0}, True),
        ({"default": 0.0, "max-autotune": -1.0}, True),
        ({}, False),
        ({"default": 0.0, "max-autotune": 2.0}, False),
        ({"default": 0.0, "max-autotune": -2.0}, False),
    ],
)
def test_what_compiles_itself_without_an_end_is_not_timed(
    gains: dict[str, float], endless: bool, tmp_path: Path
) -> None:
    found, referee = measured(tmp_path, gains)
    assert found.compile_endless is endless
    assert set(found.compile_failed) == {mode for mode, gain in gains.items() if gain in FAULTS}
    assert all("default" not in candidates for _, candidates in referee.asked)
