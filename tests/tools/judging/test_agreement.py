"""An incumbent that is slow beside a candidate and not beside its own copies is being slowed down."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.contract import WouldNotFreeze
from tests.tools.judging.compared import compared
from tools.errors import IncumbentFails
from tools.judging.agreement import REPEATS, TURNS, Cause, Doubt, check, is_in_question
from tools.judging.clock import DidNotHoldStill, Session, SideFault, Tripwire
from tools.judging.comparison import INCUMBENT, Comparison, Restart, Side, medians_us
from tools.judging.correctness import Finding
from tools.judging.measure import ComparisonRequest, LiveClock, Measured
from tools.judging.referee import Referee
from tools.judging.verdict import of_failed
from tools.judging.worker import Build, WorkerFault

KNOWN_US = 100.0
BUILD, CANDIDATE = (Build(key, Path("/nowhere")) for key in ("incumbent", "candidate"))
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


def beside(*incumbent_us: float) -> Comparison:
    """An incumbent that takes so long in each restart, beside a candidate that takes half of it."""
    seen, half = ([[us * each] for us in incumbent_us] for each in (1.0, 0.5))
    return compared([math.log(2)] * len(incumbent_us), incumbent_us=seen, candidate_us=half)


@pytest.fixture
def clock() -> LiveClock:
    workload: Any = SimpleNamespace(device="cpu")
    return LiveClock(UNUSED, workload, UNUSED, Path("/nowhere"), UNUSED, lambda: None, {BUILD.key: [[KNOWN_US]]})


def test_one_case_that_is_slower_than_the_median_of_what_is_known_is_a_question(clock: LiveClock) -> None:
    known = {BUILD.key: [[0.8 * KNOWN_US, KNOWN_US], [KNOWN_US, KNOWN_US], [1.4 * KNOWN_US, KNOWN_US]]}
    found = beside(KNOWN_US)
    for seen, asked in (([1.05, 1.05], False), ([1.15, 1.0], True), ([1.0, 1.15], True)):
        found.incumbent_us = [[KNOWN_US * each for each in seen]]
        assert is_in_question(found, known) is asked
    assert not is_in_question(beside(9 * KNOWN_US), {}), "nothing is known"
    clock.know(beside(999.0))  # from an earlier command of the run
    assert clock.known_us == {BUILD.key: [[KNOWN_US]], "candidate": [[999.0 / 2]]}, "what is known already stands"
    among = session()
    assert check(beside(1.05 * KNOWN_US), among, clock.known_us) is None and among.timed == []


def test_slow_in_every_restart_and_never_beside_its_copies_is_a_doubt_that_blames(clock: LiveClock) -> None:
    among = session(*[100.0] * 2 * TURNS)
    doubt = check(beside(140.0, 150.0, 160.0), among, clock.known_us)
    assert doubt is not None and doubt.cause == "slowed down"
    assert "takes 150 us a call, beside its own copies 100 us: it is being slowed down" in doubt.why
    assert len(among.timed) == 2 * TURNS, "as long as it does not settle"
    assert all(set(builds.values()) == {BUILD} and len(builds) == 2 for builds in among.timed), "nothing else runs"


def test_slow_beside_its_copies_too_is_the_machines_new_pace(clock: LiveClock) -> None:
    found = beside(150.0)
    assert check(found, session(*[150.0] * TURNS), clock.known_us) is None
    assert found.failed == "" and clock.known_us[BUILD.key] == [[150.0]] * 2 * TURNS
    assert check(beside(155.0), session(), clock.known_us) is None, "known from now on"


@pytest.mark.parametrize(
    ("known_us", "seen_us", "among_us", "pace_us"),
    [
        (100.0, [130.0, 150.0, 150.0], [100.0, 140.0, *[100.0] * (2 * TURNS - 2)], 100.0),
        # the quicker of what was known and what was seen beside its copies
        (100.0, [110.0, 150.0, 160.0], [120.0] * 2 * TURNS, 100.0),
        (130.0, [110.0, 150.0, 160.0], [120.0] * 2 * TURNS, 120.0),
    ],
)
def test_changes_of_pace_blame_nobody(
    known_us: float, seen_us: list[float], among_us: list[float], pace_us: float
) -> None:
    doubt = check(beside(*seen_us), session(*among_us), {BUILD.key: [[known_us]]})
    assert doubt is not None and (doubt.cause, list(doubt.pace_us)) == ("pace", [pace_us])
    assert doubt.why.endswith("but not in every restart: the machine changes its pace")


@pytest.mark.parametrize(
    ("seen_us", "has_time", "counted", "copies", "cause"),
    [
        ([100.0, 104.0, 105.0], True, [2.0] * 3, 0, None),  # as it is known to be
        ([90.0, 120.0, 150.0], True, [2.0, 2.0 / 1.2, 2.0 / 1.5], 0, None),  # a gain even if it was slowed down
        ([120.0, 120.0, 190.0], True, [2.0] * 3, 2 * TURNS, "slowed down"),  # none if it was
        ([120.0, 120.0, 190.0], False, [2.0] * 3, 0, "pace"),
    ],
)
def test_nobody_asks_who_slowed_the_incumbent_down_where_a_gain_is_left_without_it(
    seen_us: list[float], has_time: bool, counted: list[float], copies: int, cause: str | None, clock: LiveClock
) -> None:
    request = ComparisonRequest(
        "",
        BUILD,
        {"candidate": CANDIDATE},
        bool,
        hurried=lambda seconds, likely=False: not has_time,
        counts=lambda found: min(found.log_ratios) > math.log(1.3),
        low_serves=True,
    )
    among = session(*[100.0] * 2 * TURNS)
    found, doubt = clock._beside_itself(request, beside(*seen_us), among)
    assert [math.exp(ratio) for ratio in found.log_ratios] == pytest.approx(counted)
    assert len(among.timed) == copies and (doubt.cause if doubt else None) == cause
    assert found.incumbent_us == [[us] for us in seen_us] and bool(found.pace_us) is (counted != [2.0] * 3)


@dataclass
class Failing(Paced):
    fault: Any = None

    def restart(self) -> Restart:
        raise SideFault("copy 1", self.fault)


def test_what_fails_beside_its_own_copies_fails_by_itself(clock: LiveClock) -> None:
    builds = session().builds
    with pytest.raises(IncumbentFails, match="it ended"):
        among = Failing(UNUSED, UNUSED, builds, UNUSED, UNUSED, fault=WorkerFault("died", "it ended"))
        check(beside(150.0), among, clock.known_us)
    among = Failing(UNUSED, UNUSED, builds, UNUSED, UNUSED, fault=Tripwire("a thread changed its priority"))
    doubt = check(beside(150.0), among, clock.known_us)
    assert doubt is not None and doubt.cause == "guard" and "changed its priority" in doubt.why
    assert clock.known_us == {BUILD.key: [[KNOWN_US]]}, "nothing was learned"


@pytest.fixture
def doubted(clock: LiveClock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[str]]]:
    """A comparison that ends in these doubts, one after the other, then in none; with what was told meanwhile."""

    def compare(*doubts: Doubt, **how: Any) -> tuple[Any, list[str]]:
        answers, told = iter([*doubts, None]), list[str]()
        monkeypatch.setattr(LiveClock, "_measure", lambda *_: next(answers))
        how = {"candidates": {"candidate": CANDIDATE}, "doing": told.append, **how}
        return clock.compare(ComparisonRequest("doubted", BUILD, enough=bool, **how)), told

    return compare


@pytest.mark.parametrize("settles", [True, False])
@pytest.mark.parametrize(
    ("cause", "verdict"),
    [
        ("pace", "inconclusive"),
        ("guard", "inconclusive"),
        ("slowed down", "refused"),
        ("fails beside it", "refused"),
    ],
)
def test_a_doubt_is_measured_again_and_then_decided(doubted: Any, cause: Cause, verdict: str, settles: bool) -> None:
    most = REPEATS[cause]
    found, told = doubted(*[Doubt(cause, "why", [100.0])] * (most if settles else most + 1))
    assert told == ["measuring again: why"] * most and found.only.summary(0.0)["measured_again"] == ["why"] * most
    failed = of_failed(found.only, {})
    assert (failed.name if failed else None) == (None if settles else verdict)


def test_a_change_of_pace_is_no_first_sign_of_slowing_down(doubted: Any) -> None:
    pace, slowed = Doubt("pace", "pace"), Doubt("slowed down", "slowed down")
    found, told = doubted(pace, pace, slowed)
    assert told == [f"measuring again: {why}" for why in ("pace", "pace", "slowed down")] and found.only.failed == ""


STIRRED = DidNotHoldStill("it ran for 1.3 ms while it was stopped")


@pytest.mark.parametrize("fault", [STIRRED, Tripwire("a thread changed its priority")])
@pytest.mark.parametrize("side", [INCUMBENT, "copy", "what draws the inputs"])
@pytest.mark.parametrize("times", [REPEATS["guard"], 99])
def test_a_guard_that_fires_on_the_original_never_ends_the_run(
    times: int, side: str, fault: Tripwire, clock: LiveClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither in an A/A comparison, whose noise is not usable then, nor beside a candidate."""
    raised = WouldNotFreeze(str(fault)) if side.startswith("what") else SideFault(side, fault)
    left = 0

    def measure(self: LiveClock, request: object, found: dict[str, Comparison], outputs: object) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise raised
        for each in found.values():
            each.case_log_ratios = each.case_total_log_ratios = [[0.0]] * 12
            each.incumbent_us = each.candidate_us = [[KNOWN_US]] * 12

    monkeypatch.setattr(LiveClock, "_measure", measure)
    monkeypatch.setattr(LiveClock, "_forget_outputs", lambda self: None)
    told = list[str]()
    judge = Referee(UNUSED, clock.workload, BUILD, clock, tmp_path, UNUSED, UNUSED)
    judge.say = lambda what, *_: told.append(what)
    for candidates in ({"copy": BUILD}, {"candidate": CANDIDATE, "copy": BUILD}):
        left = times
        found = clock.compare(ComparisonRequest("", BUILD, candidates, bool, doing=told.append)).comparisons
        assert {each.refused or each.broken for each in found.values()} == {""}
        assert [bool(each.unsettled) for each in found.values()] == [times == 99] * len(candidates)
    assert len(told) == 2 * REPEATS["guard"] and all(str(fault) in each for each in told)
    left = times
    if side == "copy":  # by the name that it has there
        raised = SideFault("itself", fault)
    noise, found = judge.measure_noise()
    aa = found.only
    assert (noise.usable, noise.delta, len(aa.repeated)) == (times < 99, 0.02, REPEATS["guard"])
    assert (str(fault) in noise.reason) is not noise.usable and judge.narrow_noise() is judge.noise


@pytest.mark.parametrize(("fault", "tried"), [(STIRRED, 2), (Tripwire("a thread changed its priority"), 1)])
def test_a_candidate_that_does_not_hold_still_is_refused_the_second_time(
    fault: Tripwire, tried: int, clock: LiveClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()

    def measure(*_: object) -> None:
        told.append("measured")
        raise SideFault("candidate", fault)

    monkeypatch.setattr(LiveClock, "_measure", measure)
    request = ComparisonRequest("", BUILD, {"candidate": CANDIDATE}, bool, doing=told.append)
    found = clock.compare(request).only
    assert (found.refused, len(found.repeated)) == (str(fault), tried - 1)
    assert told == ["measured", f"measuring again: candidate: {fault}", "measured"][: 2 * tried - 1]


@pytest.mark.parametrize(("cause", "repeats"), [("pace", 0), ("guard", 0), ("slowed down", 2), ("fails beside it", 1)])
def test_a_hurried_run_measures_again_only_to_blame_somebody(doubted: Any, cause: Cause, repeats: int) -> None:
    asked = list[float]()
    found, told = doubted(
        *[Doubt(cause, "why", [100.0])] * 2, hurried=lambda seconds, likely=False: asked.append(seconds) or True
    )
    assert told == ["measuring again: why"] * repeats and bool(found.only.unsettled) is (repeats == 0)
    assert all(seconds > 0 for seconds in asked) and bool(asked) is (repeats == 0), "as long as it took"


def test_restarts_that_were_begun_are_measured_anew_with_what_is_doubted(
    clock: LiveClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubts, known = iter([Doubt("pace", "why", [100.0]), None]), list[int]()

    def measure(self: LiveClock, request: Any, found: dict[str, Comparison], outputs: Any) -> Doubt | None:
        known.append(len(found["candidate"].log_ratios))
        return next(doubts)

    monkeypatch.setattr(LiveClock, "_measure", measure)
    clock.compare(ComparisonRequest("", BUILD, {"candidate": CANDIDATE}, bool, begun=beside(100.0, 150.0, 100.0)))
    assert known == [3, 0]


@pytest.mark.parametrize(
    ("cause", "blamed"),
    [(cause, ["candidate"] if cause == "pace" else ["candidate", "compiled", "copy"]) for cause in REPEATS],
)
def test_only_who_could_gain_by_it_is_told_of_the_pace(doubted: Any, cause: Cause, blamed: list[str]) -> None:
    compiled = replace(BUILD, key="incumbent+compile", compile_options={})
    candidates = {"candidate": CANDIDATE, "compiled": compiled, "copy": BUILD}
    found, _ = doubted(*[Doubt(cause, "why", [100.0])] * 4, candidates=candidates)
    assert [name for name, each in found.comparisons.items() if each.failed] == blamed


def test_what_the_machines_pace_may_have_given_is_taken_from_what_counts() -> None:
    found = beside(90.0, 100.0, 150.0, 200.0)
    Doubt("pace", "why", [100.0]).tell(found)
    counted = found.at_pace()
    for rows in (counted.case_log_ratios, counted.case_total_log_ratios):
        assert [math.exp(ratio) for (ratio,) in rows] == pytest.approx([2.0, 2.0, 2.0 / 1.5, 1.0])
    assert found.log_ratios == [math.log(2)] * 4 and counted.incumbent_us == found.incumbent_us, "as it was measured"


@pytest.mark.parametrize(
    ("gain", "unsettled", "name"),
    [
        (2.0, "", "kept"),
        (2.0, "pace", "kept"),
        (0.9, "", "neutral"),
        (0.9, "pace", "neutral"),
        (2.0, "guard", "inconclusive"),
    ],
)
def test_a_whole_is_not_given_up_for_the_pace(gain: float, name: str, unsettled: str, tmp_path: Path) -> None:
    """A change that the pace may have made look good is measured again; only of a whole may there be no time for it."""
    asked = list[ComparisonRequest]()
    clock: Any = SimpleNamespace(compare=lambda request: (asked.append(request), Measured({}))[1])
    judge: Any = Referee(
        UNUSED, UNUSED, BUILD, clock, tmp_path, UNUSED, UNUSED, hurried=lambda seconds, likely=False: True
    )
    judge.noise = SimpleNamespace(delta=0.02)
    judge.check_timed = lambda outputs: Finding(None, "")
    whole = compared([math.log(gain)] * 6, unsettled=unsettled, pace_us=[KNOWN_US] if unsettled == "pace" else [])
    assert judge.check_whole(whole, []).name == name
    judge.compare("one", BUILD, CANDIDATE)
    judge.report_on("whole stack", BUILD, {"stack": CANDIDATE})
    small = compared([0.01] * 6)  # below the floor: of a whole it counts all the same
    told = [(each.purpose, each.hurried(0.0), each.counts(small)) for each in asked]
    assert told == [("one", False, False), ("whole stack", True, True)]


@pytest.mark.parametrize(
    ("gains", "name"),
    [
        ([0.11, 0.06, -0.02], "inconclusive"),
        ([0.11, -0.01, -0.02], "neutral"),
        ([0.11, 0.06, 0.02], "kept"),
        ([0.11, 0.06, 0.05, 0.04, 0.03, -0.02], "neutral"),
    ],
)
def test_a_whole_that_a_hurried_measurement_leaves_open_is_not_given_up(
    gains: list[float], name: str, tmp_path: Path
) -> None:
    judge: Any = Referee(UNUSED, UNUSED, BUILD, UNUSED, tmp_path, UNUSED, UNUSED)
    judge.noise, judge.check_timed = SimpleNamespace(delta=0.02), lambda outputs: Finding(None, "")
    assert judge.check_whole(compared(gains), []).name == name
    judge.check_timed = lambda outputs: Finding("wrong", "it is")
    assert judge.check_whole(compared(gains), []).name == ("neutral" if name == "neutral" else "wrong")


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
    builds = {INCUMBENT: BUILD, "candidate": CANDIDATE}
    session = Scattered(UNUSED, UNUSED, builds, UNUSED, UNUSED, scatter=scatter, drawn=random.Random(7))

    def incumbent_us(restarts: int) -> list[list[float]]:
        return [medians_us(session.restart().sides[INCUMBENT].call_ns) for _ in range(restarts)]

    def measure(self: LiveClock, request: object, found: dict[str, Comparison], outputs: object) -> Doubt | None:
        only = found["candidate"]
        only.incumbent_us = [[slowed * us for us in row] for row in incumbent_us(3)]
        only.case_log_ratios = [[math.log(2)] * 3] * 3
        return check(only, session, self.known_us)

    monkeypatch.setattr(LiveClock, "_measure", measure)
    seen = set()
    for _ in range(300):
        clock.known_us = {BUILD.key: incumbent_us(12)}
        failed = of_failed(clock.compare(ComparisonRequest("", BUILD, {"candidate": CANDIDATE}, bool)).only, {})
        seen.add(failed.name if failed else None)
    assert seen == verdicts
