"""An incumbent that is slow beside a candidate and not beside its own copies is being slowed down."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tools.errors import IncumbentFails
from tools.judging import accept
from tools.judging.agreement import TURNS, Cause, Doubt, check, is_in_question
from tools.judging.clock import Session, SideFault, Tripwire
from tools.judging.comparison import Comparison
from tools.judging.measure import LiveClock, Request
from tools.judging.referee import _failed
from tools.judging.timings import INCUMBENT, Restart, Side
from tools.judging.worker import Build

KNOWN_US = 100.0
BUILD = Build("incumbent", Path("/nowhere"))
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
    builds = {INCUMBENT: BUILD, "candidate": Build("candidate", Path("/nowhere"))}
    return Paced(UNUSED, UNUSED, builds, UNUSED, UNUSED, among_us=list(among_us))


def compared(*incumbent_us: float) -> Comparison:
    return Comparison(
        purpose="confirm", incumbent=BUILD.key, candidate="candidate", incumbent_us=[[us] for us in incumbent_us],
        candidate_us=[[us / 2] for us in incumbent_us], case_log_ratios=[[math.log(2)] for _ in incumbent_us],
        case_total_log_ratios=[[math.log(2)] for _ in incumbent_us],
    )  # fmt: skip


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


@pytest.mark.parametrize("cause", ["slowed down", "fails beside it"])
@pytest.mark.parametrize("settles", [True, False])
def test_what_blames_is_measured_anew_and_then_decided_however_little_time_there_is(
    clock: LiveClock, monkeypatch: pytest.MonkeyPatch, cause: Cause, settles: bool
) -> None:
    doubting(monkeypatch, [Doubt(cause, "why")] * (1 if settles else 2))
    told, found = asked(clock, hurried=True)
    assert told == ["measuring anew: why"]
    failed = _failed(found, {})
    assert (failed.name if failed else None) == (None if settles else "refused")


COUNTED = "pace: restarts in which it was slower count as if it had not been"


@pytest.mark.parametrize(
    ("hurried", "doubts", "expected"),
    [(False, 1, ["measuring anew: pace"]), (False, 2, ["measuring anew: pace", COUNTED]), (True, 1, [COUNTED])],
)
def test_a_change_of_pace_is_measured_anew_where_there_is_time_and_then_counted_against_the_candidate(
    clock: LiveClock, monkeypatch: pytest.MonkeyPatch, hurried: bool, doubts: int, expected: list[str]
) -> None:
    doubting(monkeypatch, [Doubt("pace", "pace", [100.0])] * doubts)
    told, found = asked(clock, hurried=hurried)
    assert told == expected and found.failed == ""
    assert found.pace == ("pace" if COUNTED in told else "")


def test_what_a_slow_machine_gave_to_the_candidate_is_taken_from_it() -> None:
    found = compared(90.0, 100.0, 150.0, 200.0)
    Doubt("pace", "why", [100.0]).tell(found)
    for rows in (found.case_log_ratios, found.case_total_log_ratios):
        assert [math.exp(ratio) for (ratio,) in rows] == pytest.approx([2.0, 2.0, 2.0 / 1.5, 1.0])
    assert found.incumbent_us == [[90.0], [100.0], [150.0], [200.0]], "what was measured stays"


def test_each_case_is_counted_at_its_own_pace_and_what_cancels_still_does() -> None:
    stack, compiled = (
        Comparison(purpose=name, incumbent=BUILD.key, candidate=name, incumbent_us=[[100.0, 20.0]],
                   case_log_ratios=[[gain, gain]], case_total_log_ratios=[[gain, gain]])
        for name, gain in (("stack", 2.0), ("compiled", 1.5))
    )  # fmt: skip
    for each in (stack, compiled):
        each.count_at([50.0, 40.0], "why")
    assert stack.case_log_ratios == [[pytest.approx(2.0 - math.log(2)), 2.0]]
    assert stack.over(compiled).case_log_ratios == [[pytest.approx(0.5), pytest.approx(0.5)]]


def test_a_change_of_pace_is_no_first_sign_of_slowing_down(clock: LiveClock, monkeypatch: pytest.MonkeyPatch) -> None:
    doubting(monkeypatch, [Doubt("pace", "pace", [100.0]), Doubt("slowed down", "slowed down")])
    told, found = asked(clock)
    assert told == [f"measuring anew: {why}" for why in ("pace", "slowed down")] and found.failed == ""


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
    ("scatter", "gain", "slowed", "verdicts"),
    [(0.03, 2.0, 1.0, {"kept"}), (0.1, 2.0, 1.0, {"kept"}), (0.25, 2.0, 1.0, {"kept"}),
     (0.03, 1.0, 1.3, {"refused"}), (0.1, 1.0, 2.0, {"refused"}), (0.25, 1.0, 2.0, {"refused", "neutral", "continue"})],
)  # fmt: skip
def test_of_hundreds_of_comparisons(
    monkeypatch: pytest.MonkeyPatch, clock: LiveClock, scatter: float, gain: float, slowed: float, verdicts: set[str]
) -> None:
    """None refuses a candidate because a machine scatters, and none keeps one that slows the incumbent down."""
    builds = {INCUMBENT: BUILD, "candidate": Build("candidate", Path("/nowhere"))}
    session = Scattered(UNUSED, UNUSED, builds, UNUSED, UNUSED, scatter=scatter, drawn=random.Random(7))

    def times_us(restarts: int) -> list[tuple[list[float], list[float]]]:
        """Of both sides, as they are alone."""
        timed = [session.restart().sides for _ in range(restarts)]
        incumbent, candidate = (
            [[sides[name].median_us(case) for case in range(3)] for sides in timed] for name in builds
        )
        return list(zip(incumbent, candidate, strict=True))

    def measure(self: LiveClock, request: Request, found: dict[str, Comparison], outputs: Any) -> Doubt | None:
        only = found["candidate"]
        for incumbent, candidate in times_us(6):
            only.incumbent_us.append([slowed * us for us in incumbent])
            ratios = [math.log(slowed * i / (c / gain)) for i, c in zip(incumbent, candidate, strict=True)]
            only.case_log_ratios.append(ratios)
            only.case_total_log_ratios.append(list(ratios))
        return check(only, session, self.known_us)

    monkeypatch.setattr(LiveClock, "_measure", measure)
    seen = set()
    for _ in range(300):
        clock.known_us = {BUILD.key: [incumbent for incumbent, _ in times_us(12)]}
        found = clock.compare(Request("", BUILD, {"candidate": builds["candidate"]}, bool)).only
        failed = _failed(found, {})
        seen.add(failed.name if failed else accept.look(found.log_ratios, 0.02))
    assert seen == verdicts


def asked(clock: LiveClock, *, hurried: bool = False) -> tuple[list[str], Comparison]:
    """What was told of a comparison, and the comparison."""
    told: list[str] = []
    request = Request("doubted", BUILD, {"candidate": BUILD}, bool, doing=told.append, hurried=lambda seconds: hurried)
    return told, clock.compare(request).only


def doubting(monkeypatch: pytest.MonkeyPatch, doubts: list[Doubt]) -> None:
    """Comparisons end in these doubts, one after the other, and then in none."""
    answers: Iterator[Doubt | None] = iter([*doubts, None])
    monkeypatch.setattr(LiveClock, "_measure", lambda *_: next(answers))
