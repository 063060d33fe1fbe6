"""An incumbent that is slow beside a candidate and not beside its own copies is being slowed down."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools.errors import IncumbentFails
from tools.judging.agreement import REPEATS, TURNS, Cause, Doubt, check, is_in_question
from tools.judging.clock import Session, SideFault, Tripwire
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.measure import LiveClock, Request
from tools.judging.referee import Referee
from tools.judging.timings import INCUMBENT, Restart, Side
from tools.judging.verdict import of_failed
from tools.judging.worker import Build

KNOWN_US = 100.0
BUILD = Build("incumbent", Path("/nowhere"))
CANDIDATE = Build("candidate", Path("/nowhere"))
UNUSED: Any = None


@dataclass
class Paced(Session):
    """Restarts in which the incumbent and its copies take these times, one after the other."""

    among_us: list[float] = field(default_factory=list)
    timed: list[dict[str, Build]] = field(default_factory=list)

    def restart(self) -> Restart:
        self.timed.append(self.builds)
        ns = round(1000 * self.among_us.pop(0))
        return Restart({name: Side({0: [ns]}, {0: [0]}) for name in self.builds}, 0.0)


def session(*among_us: float) -> Paced:
    builds = {INCUMBENT: BUILD, "candidate": CANDIDATE}
    return Paced(UNUSED, UNUSED, builds, UNUSED, UNUSED, among_us=list(among_us))


def compared(*incumbent_us: float) -> Comparison:
    return Comparison(
        purpose="confirm",
        incumbent=BUILD.key,
        candidate="candidate",
        incumbent_us=[[us] for us in incumbent_us],
        candidate_us=[[us / 2] for us in incumbent_us],
        case_log_ratios=[[math.log(2)] for _ in incumbent_us],
        case_total_log_ratios=[[math.log(2)] for _ in incumbent_us],
    )


@pytest.fixture
def clock() -> LiveClock:
    @dataclass
    class CPU:
        device: str = "cpu"

    made = LiveClock(UNUSED, UNUSED, UNUSED, Path("/nowhere"), UNUSED, lambda: None, {BUILD.key: [[KNOWN_US]]})
    return replace(made, workload=CPU())  # type: ignore[arg-type]


def test_as_fast_as_it_is_known_to_be(clock: LiveClock) -> None:
    found, beside = compared(1.05 * KNOWN_US), session()
    assert check(found, beside, clock.known_us) is None
    assert beside.timed == [] and found.failed == ""


def test_one_case_that_is_slower_than_the_median_of_what_is_known_is_a_question() -> None:
    known = {BUILD.key: [[0.8 * KNOWN_US, KNOWN_US], [KNOWN_US, KNOWN_US], [1.4 * KNOWN_US, KNOWN_US]]}
    found = compared(KNOWN_US)
    for seen, asked in (([1.05, 1.05], False), ([1.15, 1.0], True), ([1.0, 1.15], True)):
        found.incumbent_us = [[KNOWN_US * each for each in seen]]
        assert is_in_question(found, known) is asked
    assert not is_in_question(compared(9 * KNOWN_US), {}), "nothing is known"


def test_an_earlier_command_of_the_run_says_what_is_known(clock: LiveClock) -> None:
    clock.know(compared(999.0))
    assert clock.known_us == {BUILD.key: [[KNOWN_US]], "candidate": [[999.0 / 2]]}, "what is known already stands"


def test_slow_in_every_restart_and_never_beside_its_copies_is_a_doubt_that_blames(clock: LiveClock) -> None:
    beside = session(*[100.0] * 2 * TURNS)
    doubt = check(compared(140.0, 150.0, 160.0), beside, clock.known_us)
    assert doubt is not None and doubt.cause == "slowed down"
    assert "takes 150 us a call, beside its own copies 100 us: it is being slowed down" in doubt.why
    assert len(beside.timed) == 2 * TURNS, "as long as it does not settle"
    assert all(set(builds.values()) == {BUILD} and len(builds) == 2 for builds in beside.timed), "nothing else runs"


def test_slow_beside_its_copies_too_is_the_machines_new_pace(clock: LiveClock) -> None:
    found, beside = compared(150.0), session(*[150.0] * TURNS)
    assert check(found, beside, clock.known_us) is None
    assert found.failed == "" and clock.known_us[BUILD.key] == [[150.0]] * 2 * TURNS
    assert check(compared(155.0), session(), clock.known_us) is None, "known from now on"


def test_restarts_as_slow_as_one_beside_its_copies_blame_nobody(clock: LiveClock) -> None:
    found = compared(130.0, 150.0, 150.0)
    doubt = check(found, session(100.0, 140.0, *[100.0] * (2 * TURNS - 2)), clock.known_us)
    assert doubt is not None and doubt.cause == "pace" and list(doubt.pace_us) == [100.0]
    assert "150 us a call, beside its own copies 100 us, but not in every restart" in doubt.why
    assert found.failed == ""


def test_what_fails_beside_its_own_copies_fails_by_itself(clock: LiveClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Session) -> Restart:
        raise SideFault("copy 1", Tripwire("it ended"))

    monkeypatch.setattr(Paced, "restart", fail)
    with pytest.raises(IncumbentFails, match="it ended"):
        check(compared(150.0), session(), clock.known_us)


@pytest.mark.parametrize(
    ("cause", "verdict"), [("pace", "inconclusive"), ("slowed down", "refused"), ("fails beside it", "refused")]
)
@pytest.mark.parametrize("settles", [True, False])
def test_what_is_doubted_is_measured_again_and_then_decided(
    clock: LiveClock, monkeypatch: pytest.MonkeyPatch, cause: Cause, verdict: str, settles: bool
) -> None:
    doubt, most = Doubt(cause, "why", [100.0]), REPEATS[cause]
    doubting(monkeypatch, [doubt] * (most if settles else most + 1))
    told: list[str] = []
    found = clock.compare(Request("doubted", BUILD, {"candidate": CANDIDATE}, bool, doing=told.append)).only
    assert told == ["measuring again: why"] * most
    failed = of_failed(found, {})
    assert (failed.name if failed else None) == (None if settles else verdict)


def test_a_change_of_pace_is_no_first_sign_of_slowing_down(clock: LiveClock, monkeypatch: pytest.MonkeyPatch) -> None:
    pace, slowed = Doubt("pace", "pace"), Doubt("slowed down", "slowed down")
    doubting(monkeypatch, [pace, pace, slowed])
    told: list[str] = []
    found = clock.compare(Request("doubted", BUILD, {"candidate": CANDIDATE}, bool, doing=told.append)).only
    assert told == [f"measuring again: {why}" for why in ("pace", "pace", "slowed down")] and found.failed == ""


@pytest.mark.parametrize(("cause", "repeats"), [("pace", 0), ("slowed down", 1), ("fails beside it", 1)])
def test_where_there_is_no_time_nothing_is_measured_again_for_the_pace(
    clock: LiveClock, monkeypatch: pytest.MonkeyPatch, cause: Cause, repeats: int
) -> None:
    doubting(monkeypatch, [Doubt(cause, "why", [100.0])] * 2)
    told, asked = list[str](), list[float]()

    def hurried(seconds: float) -> bool:
        asked.append(seconds)
        return True

    request = Request("doubted", BUILD, {"candidate": CANDIDATE}, bool, doing=told.append, hurried=hurried)
    found = clock.compare(request).only
    assert told == ["measuring again: why"] * repeats and bool(found.unsettled) is (cause == "pace")
    assert all(seconds > 0 for seconds in asked) and bool(asked) is (cause == "pace"), "as long as it took"


def test_only_who_could_gain_by_it_is_told_of_the_pace(clock: LiveClock, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = replace(BUILD, key="incumbent+compile", compile_options={})
    candidates = {"candidate": CANDIDATE, "compiled": compiled, "copy": BUILD}
    for cause, blamed in (("pace", ["candidate"]), ("slowed down", list(candidates))):
        doubting(monkeypatch, [Doubt(cause, "why", [100.0])] * 4)
        found = clock.compare(Request("doubted", BUILD, candidates, bool)).comparisons
        assert [name for name, each in found.items() if each.failed] == blamed


def test_what_the_machines_pace_may_have_given_is_taken_from_what_counts() -> None:
    found = compared(90.0, 100.0, 150.0, 200.0)
    Doubt("pace", "why", [100.0]).tell(found)
    counted = found.at_pace()
    for rows in (counted.case_log_ratios, counted.case_total_log_ratios):
        assert [math.exp(ratio) for (ratio,) in rows] == pytest.approx([2.0, 2.0, 2.0 / 1.5, 1.0])
    assert found.log_ratios == [math.log(2)] * 4 and counted.incumbent_us == found.incumbent_us, "as it was measured"


@pytest.mark.parametrize(("known_us", "among_us", "pace_us"), [(100.0, 120.0, 100.0), (130.0, 120.0, 120.0)])
def test_the_pace_is_the_quicker_of_what_was_known_and_what_was_seen_beside_its_copies(
    known_us: float, among_us: float, pace_us: float
) -> None:
    known = {BUILD.key: [[known_us]]}
    doubt = check(compared(110.0, 150.0, 160.0), session(*[among_us] * 2 * TURNS), known)
    assert doubt is not None and (doubt.cause, list(doubt.pace_us)) == ("pace", [pace_us])


@pytest.mark.parametrize("unsettled", ["", "the pace"])
@pytest.mark.parametrize(("gain", "name"), [(2.0, "kept"), (0.9, "neutral")])
def test_a_whole_is_given_up_for_what_was_measured_and_not_for_the_pace(
    gain: float, name: str, unsettled: str, tmp_path: Path
) -> None:
    judge: Any = Referee(UNUSED, UNUSED, BUILD, UNUSED, tmp_path, UNUSED)
    judge.noise = SimpleNamespace(delta=0.02)
    judge.workload = SimpleNamespace(cases=[SimpleNamespace(name="the case")])
    judge.check_timed = lambda outputs: Finding(None, "")
    found = compared(*[100.0] * 6)
    found.case_log_ratios = [[math.log(gain)] for _ in range(6)]
    found.unsettled = unsettled
    assert judge.check_whole(found, []).name == name


def test_only_a_whole_is_told_how_little_time_there_is(tmp_path: Path) -> None:
    """A change that the machine's pace may have made look good is measured again, or not kept."""
    asked = list[Request]()
    clock: Any = SimpleNamespace(compare=asked.append)
    judge: Any = Referee(UNUSED, UNUSED, BUILD, clock, tmp_path, UNUSED, hurried=lambda seconds: True)
    judge.noise = SimpleNamespace(delta=0.02)
    judge.confirm("confirm", BUILD, CANDIDATE)
    judge.report_on("whole stack", BUILD, {"stack": CANDIDATE})
    assert [(each.purpose, each.hurried(0.0)) for each in asked] == [("confirm", False), ("whole stack", True)]


@dataclass
class Scattered(Session):
    """Restarts whose sides take times that scatter, some of it by the restart and some of it by the side."""

    scatter: float = 0.0
    drawn: random.Random = UNUSED

    def restart(self) -> Restart:
        pace = [self.drawn.gauss(0, 0.7 * self.scatter) for _ in range(3)]
        ns = {name: [1e5 * math.exp(p + self.drawn.gauss(0, 0.7 * self.scatter)) for p in pace] for name in self.builds}
        return Restart({n: Side({case: [round(t)] for case, t in enumerate(ts)}, {}) for n, ts in ns.items()}, 0.0)


@pytest.mark.parametrize(
    ("scatter", "slowed", "verdicts"),
    [
        (0.03, 1.0, {None}),
        (0.1, 1.0, {None}),
        (0.25, 1.0, {None, "inconclusive"}),
        (0.03, 1.3, {"refused"}),
        (0.1, 2.0, {"refused"}),
        (0.25, 2.0, {"refused"}),
    ],
)
def test_of_hundreds_of_comparisons(
    monkeypatch: pytest.MonkeyPatch, clock: LiveClock, scatter: float, slowed: float, verdicts: set[str | None]
) -> None:
    """None refuses a candidate because a machine scatters, and none overlooks one that slows the incumbent down."""
    builds = {INCUMBENT: BUILD, "candidate": Build("candidate", Path("/nowhere"))}
    session = Scattered(UNUSED, UNUSED, builds, UNUSED, UNUSED, scatter=scatter, drawn=random.Random(7))

    def incumbent_us(restarts: int) -> list[list[float]]:
        timed = [session.restart().sides[INCUMBENT] for _ in range(restarts)]
        return [[side.median_us(case) for case in range(3)] for side in timed]

    def measure(self: LiveClock, request: Request, found: dict[str, Comparison], outputs: Any) -> Doubt | None:
        only = found["candidate"]
        only.incumbent_us = [[slowed * us for us in row] for row in incumbent_us(6)]
        only.case_log_ratios = [[math.log(2)] * 3] * 6
        return check(only, session, self.known_us)

    monkeypatch.setattr(LiveClock, "_measure", measure)
    seen = set()
    for _ in range(300):
        clock.known_us = {BUILD.key: incumbent_us(12)}
        failed = of_failed(clock.compare(Request("", BUILD, {"candidate": builds["candidate"]}, bool)).only, {})
        seen.add(failed.name if failed else None)
    assert seen == verdicts


def doubting(monkeypatch: pytest.MonkeyPatch, doubts: list[Doubt]) -> None:
    """Comparisons end in these doubts, one after the other, and then in none."""
    answers: Iterator[Doubt | None] = iter([*doubts, None])
    monkeypatch.setattr(LiveClock, "_measure", lambda *_: next(answers))
