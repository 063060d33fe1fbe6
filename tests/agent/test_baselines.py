"""Which lines of torch.compile the stack is compared with, and which of them is a candidate at once."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from agent import baselines, prepare
from agent.baselines import confirm_best, measure_tuned
from agent.budget import Budget
from agent.guard import Stopped
from agent.records import measurements
from agent.records.attempts import Attempt, Attempts
from agent.records.measurements import SessionStart
from agent.steps import profile_baseline
from tests.agent.one_context import one_context
from tests.agent.synthetic_clock import COMPILED
from tests.agent.whole_runs import COPIES, TWO_BRANCHES, agent
from tests.files import write_files
from tests.tools.judging.compared import compared
from tools.candidate import Candidate, Key
from tools.judging.accept import noise_floor
from tools.judging.check import COPIES_IN_A_CHECK, Checked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.measure import ComparisonRequest, Measured
from tools.judging.own_tests import OwnTests
from tools.judging.verdict import Verdict
from tools.judging.worker import Build, WorkerFault

PRISTINE = Build("pristine", Path("/nowhere"))
FAULTS = {0.0: "compiles_again", -1.0: "hangs", -2.0: "died"}  # of a mode, in place of its gain


class Referee:
    """Fills nothing, and times by a table of speedups; some modes answer wrongly when their outputs are looked at.

    Without a gain a mode cannot be compiled.
    """

    delta, noise = 0.02, noise_floor([0.0] * 12, "cpu")
    setting = SimpleNamespace(check_timeout_s=100.0)

    def __init__(self, gains: Mapping[str, float], wrong: tuple[str, ...]) -> None:
        self.gains, self.wrong, self.clock = gains, wrong, self
        self.asked: list[tuple[str, list[str]]] = []

    def fill(self, build: Build) -> Build:
        if kind := FAULTS.get(self.gains[build.key]):
            raise WorkerFault(kind, "it cannot be compiled")
        return build

    def prepare_compiler(self) -> None: ...

    def run_own_tests(self) -> OwnTests:
        return OwnTests(note="none")

    def measure_noise(self, beside: Mapping[str, Build] = MappingProxyType({})) -> tuple[Any, Measured]:
        candidates = {"itself": PRISTINE, **beside}
        enough = {PRISTINE.key: 12}  # others are in the first restarts only
        request = ComparisonRequest(
            "aa", PRISTINE, candidates, lambda found: len(found.log_ratios) >= enough.get(found.candidate, 3)
        )
        return self.noise, self.compare(request)

    def compare(self, request: ComparisonRequest) -> Measured:
        self.asked.append((request.purpose, sorted(request.candidates)))
        return Measured({name: self._comparison(request, name) for name in request.candidates})

    def _comparison(self, request: ComparisonRequest, name: str) -> Comparison:
        found, gain = request.blank(name), self.gains.get(name, 1.0)
        if math.isnan(gain):
            found.broken = "it does not run"
        while not request.enough(found):
            found.case_log_ratios.append([math.log(gain)])
        return found

    def decide(self, checked: Checked, compared: Comparison, *_: object) -> Verdict:
        gains = compared.interval(self.delta)
        return Verdict(name="kept" if gains.median > 1 else "slower", reason="", speedup=gains)

    def begin(self, found: Comparison) -> None:
        self.asked.append(("begun", [found.purpose]))

    def would_keep(self, found: Comparison) -> bool:
        return True

    def believed(self, first: Verdict, *_: object) -> Verdict:
        return first

    def check_timed(self, outputs: object) -> Finding:
        wrong = [mode for mode in self.asked[-1][1] if mode in self.wrong]
        return Finding("wrong", "its outputs are wrong") if wrong else Finding(None, "")


def measured(
    run_dir: Path,
    gains: Mapping[str, float],
    *later: Callable[[Any], object],
    wrong: tuple[str, ...] = (),
    emit: Callable[[object], None] = lambda event: None,
    end_running: Callable[[], None] = lambda: None,
    left_s: float = 1e6,
    **more: Any,
) -> tuple[SessionStart, Referee]:
    referee = Referee(gains, wrong)
    builds = {mode: Build(mode, Path("/nowhere")) for mode in more.pop("modes", gains)}
    ctx = one_context(
        run_dir=run_dir,
        referee=referee,
        compile_baselines=builds,
        compile_baseline=lambda mode: referee.fill(builds[mode]),
        pristine_checked=lambda: Checked(Finding(None, ""), PRISTINE),
        **{"propose": lambda *asked, **how: ([], ""), **more},
        view=lambda: None,
        profile=lambda name, build: None,
        stack=SimpleNamespace(top="", commits=list),
        config=SimpleNamespace(steps=["compile_model", "capture_graph"], seed=None),
        budget=Budget.left(left_s / 60, 0.0),
        workload=SimpleNamespace(fits=lambda copies: True),
        platform=SimpleNamespace(device="cuda"),
        progress=SimpleNamespace(emit=emit),
        say=lambda *said, **about: None,
        end_running=end_running,
        subject="",
    )
    measurements.keep_session(profile_baseline.measure(ctx), run_dir)
    for late in later:
        late(ctx)
    found = measurements.session_start(run_dir)
    assert found is not None
    return found, referee


THREE = {"default": 2.0, "reduce-overhead": 5.0, "max-autotune": 5.2}


def test_plain_modes_are_timed_beside_the_original_and_its_copy_and_tuning_comes_last(tmp_path: Path) -> None:
    found, referee = measured(tmp_path, THREE)
    assert referee.asked == [("aa", ["default", "itself", "reduce-overhead"])]
    assert (sorted(found.compile), found.best_compile()) == (["default", "reduce-overhead"], "reduce-overhead")
    found, referee = measured(tmp_path, THREE, measure_tuned, measure_tuned, confirm_best, confirm_best)
    assert [purpose for purpose, _ in referee.asked] == ["aa", "baselines, tuned", "baselines"], "each of them once"
    assert sorted(found.compile) == sorted(THREE) and found.best_compile() == "max-autotune"
    assert not found.compile_screened


def test_tuning_that_is_not_the_best_is_known_by_few_restarts(tmp_path: Path) -> None:
    found, _ = measured(tmp_path, {**THREE, "max-autotune": 1.1}, measure_tuned, confirm_best)
    assert found.best_compile() == "reduce-overhead" and len(found.compile_screened["max-autotune"].log_ratios) == 3


def test_there_is_no_tuning_where_nothing_plain_runs_or_no_time_is_left(tmp_path: Path) -> None:
    found, _ = measured(tmp_path, {"default": -2.0, "max-autotune": 5.2}, measure_tuned)
    assert set(found.compile_failed) == {"default"} and found.best_compile() == ""
    found, _ = measured(tmp_path, THREE, measure_tuned, left_s=90.0)
    assert found.compile_failed == {"max-autotune": "there was no time for tuning"}


def test_graph_breaks_are_those_of_the_mode_that_has_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert measured(tmp_path, THREE)[0].compile_breaks is None
    monkeypatch.setattr(Referee, "fill", lambda self, build: replace(build, graph_breaks=len(build.key)))
    assert measured(tmp_path, THREE)[0].compile_breaks == len("reduce-overhead")


def test_a_mode_whose_outputs_are_wrong_is_no_baseline(tmp_path: Path) -> None:
    found, _ = measured(tmp_path, {"default": 2.0}, wrong=("default",))
    assert found.compile_failed == {"default": "its outputs are wrong"} and not found.compile_pays(0.02)


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_taken_from_beside_the_whole_stack(fails: bool, tmp_path: Path) -> None:
    def whole(ctx: Any) -> None:
        request = ComparisonRequest("whole stack", PRISTINE, {"stack": PRISTINE, "max-autotune": PRISTINE}, bool)
        mode = compared([1.6] * 6, broken="it died" if fails else "")
        beside = Measured({"stack": request.blank("stack"), "max-autotune": mode})
        session = measurements.session_start(ctx.run_dir)
        assert session is not None
        assert baselines.take_beside(ctx, session, "max-autotune", beside) is not fails

    found, _ = measured(tmp_path, {"default": 2.0, "max-autotune": 5.2}, measure_tuned, whole)
    assert set(found.compile) == {"default", *(() if fails else ("max-autotune",))}
    assert found.compile_failed == ({"max-autotune": "it died"} if fails else {})


@pytest.mark.parametrize(
    ("gains", "tuning", "recording"),
    [
        (THREE, True, True),
        ({"default": 2.0, "max-autotune-no-cudagraphs": 5.2}, True, False),
        ({"default": 5.15, "max-autotune": 5.2}, False, False),
        ({"default": 5.2, "max-autotune": 2.0}, False, False),
        ({"default": 2.0, "reduce-overhead": 5.0, "max-autotune": 1.2}, False, True),
        ({"default": 5.0, "reduce-overhead": 5.05}, False, False),
        ({"default": 5.2}, False, False),
    ],
)
def test_tuning_pays_where_it_beats_every_other_mode_and_recording_where_it_beats_one_that_does_not_record(
    gains: dict[str, float], tuning: bool, recording: bool, tmp_path: Path
) -> None:
    found = measured(tmp_path, gains, measure_tuned)[0]
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

    def emit(event: object) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(10)
            raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(Referee, "fill", fill)
    monkeypatch.setattr(prepare, "_side_by_side", lambda ctx, modes: (1, 1))
    with pytest.raises(Stopped):
        measured(tmp_path, {"default": 2.0, "reduce-overhead": 5.2}, emit=emit, end_running=ended_ours.set)
    assert put_away == ["reduce-overhead"]


@pytest.mark.parametrize(
    ("device", "seed", "room", "threads", "checks"),
    [
        ("cuda", None, 99, 7, 4),
        ("cpu", None, 99, 2, 2),
        ("cuda", 7, 99, 1, 1),
        ("cuda", None, 2 * COPIES_IN_A_CHECK + 3, 5, 2),
        ("cuda", None, 2 * COPIES_IN_A_CHECK, 2, 2),
        ("cuda", None, 5, 1, 1),
    ],
)
def test_things_are_done_one_by_one_where_inputs_are_those_of_a_seed_or_memory_is_short(
    device: str, seed: int | None, room: int, threads: int, checks: int
) -> None:
    ctx = one_context(
        config=SimpleNamespace(seed=seed),
        workload=SimpleNamespace(fits=lambda copies: copies <= room),
        platform=SimpleNamespace(device=device),
    )
    assert prepare._side_by_side(ctx, 2) == (threads, checks)


def test_a_restart_is_known_with_the_modes_beside_it_and_without() -> None:
    def known(aa: int, wall_s: float, **modes: Comparison) -> SessionStart:
        return SessionStart(aa=compared([0.0] * aa, wall_s=wall_s), own_tests=OwnTests(note=""), compile=modes)

    modes = {"default": compared([0.5] * 3, wall_s=30.0), "other": compared([0.5] * 3, wall_s=30.0)}
    for found, plain_s, compiled_s in (
        (known(12, 48.0, **modes), 2.0, 10.0),
        (known(12, 48.0), 4.0, 4.0),
        (known(3, 30.0, **modes), 10.0, 10.0),  # none without
    ):
        assert (found.plain_restart_s, found.compiled_restart_s) == (plain_s, compiled_s)


@pytest.mark.parametrize(
    ("gains", "endless"),
    [
        ({"default": 0.0, "reduce-overhead": 0.0}, True),
        ({"default": 0.0, "reduce-overhead": -1.0}, True),
        ({}, False),
        ({"default": 0.0, "reduce-overhead": 2.0}, False),
        ({"default": 0.0, "reduce-overhead": -2.0}, False),
    ],
)
def test_what_compiles_itself_without_an_end_is_not_timed(
    gains: dict[str, float], endless: bool, tmp_path: Path
) -> None:
    found, referee = measured(tmp_path, gains)
    assert found.compile_endless is endless
    assert set(found.compile_failed) == {mode for mode, gain in gains.items() if gain in FAULTS}
    assert all("default" not in candidates for _, candidates in referee.asked)


PLAIN, RECORDED, CAPTURE = (
    Candidate(step=step, title="", rationale="", diff="", key=Key(rewriter, "the model", variant))
    for step, rewriter, variant in (
        ("compile_model", "compile_model", "dynamic"),
        ("compile_model", "compile_and_capture", "dynamic"),
        ("capture_graph", "capture", ""),
    )
)


@pytest.mark.parametrize(
    ("compiled", "recorded", "beside", "first", "gain", "told"),
    [
        (2.0, 5.0, ["default", "default, calls recorded", "itself"], "compile_model-1", 5.0, ""),
        (2.0, 2.01, ["default", "default, calls recorded", "itself"], "compile_model-1", 2.0, ""),
        (0.8, 0.9, ["default", "default, calls recorded", "itself"], "compile_model-1", 0.8, "slower"),
        (2.0, -2.0, ["default", "itself"], "compile_model-1", 2.0, "broken"),
        (0.0, 0.0, ["calls recorded", "itself"], "capture_graph-1", 9.0, "broken"),
        (-1.0, -1.0, ["calls recorded", "itself"], "capture_graph-1", 9.0, "broken"),
    ],
)
def test_on_a_gpu_the_best_of_what_was_compiled_is_adopted_and_calls_recorded_as_they_are_where_nothing_gains(
    compiled: float, recorded: float, beside: list[str], first: str, gain: float, told: str, tmp_path: Path
) -> None:
    gains = {"default": compiled, "default, calls recorded": recorded, "calls recorded": 9.0}
    names = dict(zip(("compile_model", "compile_and_capture", "capture"), gains, strict=True))
    forgotten, rows = list[str](), list[tuple[str, str, str]]()

    def checked(attempt: Attempt) -> Checked:
        name = names[attempt.candidate.key.rewriter]
        fault = {} if gains[name] > 0 else {"fault": FAULTS[gains[name]]}
        return Checked(Finding("broken" if fault else None, "", fault), Build(name, Path("/nowhere")))

    found, referee = measured(
        tmp_path,
        {"default": compiled} | {name: each for name, each in gains.items() if name != "default"},
        modes=["default"],
        propose=lambda step, **how: ([PLAIN, RECORDED] if step == "compile_model" else [CAPTURE], ""),
        candidate=lambda attempt: PRISTINE,
        checked=checked,
        know=lambda attempt, checked: None,
        forget=lambda attempt: forgotten.append(names[attempt.candidate.key.rewriter]),
        add=lambda attempt, verdict: rows.append((attempt.id, attempt.candidate.role, verdict.name)),
        attempts=(kept := Attempts(tmp_path / "attempts")),
    )
    assert referee.asked == [("aa", beside)]
    to_be_timed = ["capture_graph-1"] if 0 < compiled < 1 else []
    left = ["at-the-start-compile_and_capture"] if told else []
    assert rows == [(name, "beside", told) for name in left], "no step comes to what is wrong or gains nothing"
    assert sorted(path.name for path in kept.folder.iterdir()) == [*left, *to_be_timed, first]
    assert all(kept.verdict(name) is None for name in to_be_timed)
    verdict = kept.verdict(first)
    assert verdict is not None and verdict.speedup is not None and verdict.speedup.median == pytest.approx(gain)
    gone = ["default, calls recorded"] if 0 < recorded != gain else []
    assert forgotten == [*gone, *(["calls recorded"] if compiled > 1 else [])]
    assert found.compile_endless is (compiled <= 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("before", "takes", "verdict", "purpose"),
    [
        pytest.param("", "0.4", "kept", "baselines, plain", marks=pytest.mark.slow),
        pytest.param("audit_compute,", "0.4", "kept", "compile_model-1", marks=pytest.mark.slow),
        pytest.param("", "1.6", "slower", "baselines, plain", marks=pytest.mark.slow),
        pytest.param("", "0.96", "kept", "compile_model-1", marks=pytest.mark.slow),
    ],
)
def test_one_line_of_torch_compile_is_a_candidate_that_is_timed_with_the_baseline(
    before: str, takes: str, verdict: str, purpose: str, tmp_path: Path
) -> None:
    """Again by itself where the first look leaves it open, and where something was kept before it."""
    target = write_files(tmp_path / "target", {"bench.py": TWO_BRANCHES, "tail.py": COPIES})
    steps = f"profile_baseline,{before}compile_model"
    ran = agent(target, tmp_path / "runs", "--steps", steps, **{COMPILED: takes})
    assert ran.status == 0, ran.message
    first = next(each for each in ran.report.attempts if each.step == "compile_model")
    assert first.verdict == verdict and first.evidence["comparison"]["purpose"] == purpose
    kept = [*before.split(",")[:-1], "compile_model"] if verdict == "kept" else []
    assert [each.step for each in ran.report.kept] == kept
    over_line = ran.report.speedup_over_compile
    assert over_line is None or before or (over_line.ci_low, over_line.ci_high) == (1.0, 1.0), "it is that line"
