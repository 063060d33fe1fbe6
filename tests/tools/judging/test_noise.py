"""The noise floor is made narrower where a gain may lie below it, and only there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import leave_one_out
from agent.budget import Budget
from agent.records import measurements
from agent.records.measurements import SessionStart
from tests.agent.one_context import one_context
from tests.tools.judging.compared import compared
from tools.judging import accept
from tools.judging.check import Checked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.measure import ComparisonRequest, Measured
from tools.judging.own_tests import OwnTests
from tools.judging.referee import Referee
from tools.judging.worker import Build

UNUSED: Any = None
AGAIN = " above less noise"
TWELVE, EIGHTEEN = [0.045, -0.045] * 6, [0.01, -0.01] * 9
ORIGINAL = Build("original", Path("original"))
CHANGED = Checked(Finding(None, ""), Build("changed", Path("changed")))


class Clock:
    """Answers with these log ratios, by the purpose; asks as the rule does when enough has been seen. What is made for
    a `broken` purpose fails.
    """

    broken = ""

    def __init__(self, ratios: Mapping[str, Sequence[float]]) -> None:
        self.ratios, self.asked = ratios, list[tuple[str, int]]()

    def compare(self, request: ComparisonRequest) -> Measured:
        return Measured({name: self._comparison(request, name) for name in request.candidates})

    def _comparison(self, request: ComparisonRequest, name: str) -> Comparison:
        found, ratios = request.blank(name), iter(self.ratios[request.purpose])
        while not found.log_ratios or not request.enough(found):
            found.case_log_ratios.append([next(ratios)])
            found.case_total_log_ratios.append(found.case_log_ratios[-1])
            found.incumbent_us.append([100.0])
            found.candidate_us.append([100.0])
            found.wall_s += 10.0
        found.broken = "it ended" if request.purpose == self.broken else ""
        self.asked.append((found.purpose, len(found.log_ratios)))
        return found

    def know(self, found: Comparison) -> None: ...


def referee(tmp_path: Path, aa: Sequence[float] = TWELVE, **ratios: Sequence[float]) -> tuple[Referee, Clock]:
    """Whose comparisons give these ratios: `it` of a candidate, each time it is timed."""
    known = {"aa": aa, "aa, longer": EIGHTEEN, **ratios}
    known |= {f"it{suffix}": ratios.get("it", ()) for suffix in ("", AGAIN)}
    clock = Clock(known)
    workload: Any = SimpleNamespace(device="cpu", cases=[SimpleNamespace(name="the case")])
    made: Any = Referee(UNUSED, workload, ORIGINAL, clock, tmp_path, UNUSED, UNUSED)  # type: ignore[arg-type]
    made.grounds = SimpleNamespace(changes=lambda *builds: [])
    made.measure_noise()
    return made, clock


@pytest.mark.parametrize(("hurried", "restarts"), [(False, 12), (True, 6)])
def test_others_are_beside_the_original_in_its_first_restarts_only(
    hurried: bool, restarts: int, tmp_path: Path
) -> None:
    judge, clock = referee(tmp_path)
    clock.asked.clear()
    judge.hurried = lambda seconds, likely=False: hurried and seconds == 60.0
    judge.measure_noise({"default": CHANGED.build})
    assert clock.asked == [("aa: itself", restarts), ("aa: default", accept.FIRST_LOOK)]


@pytest.mark.parametrize(("malloc", "hurried", "restarts"), [(True, True, 3), (False, True, 3), (False, False, 6)])
def test_a_number_for_the_report_is_taken_at_the_first_look_where_there_is_no_time(
    malloc: bool, hurried: bool, restarts: int, tmp_path: Path
) -> None:
    judge, clock = referee(tmp_path, whole=[0.5, 0.7] * 6)
    judge.hurried = lambda seconds, likely=False: hurried
    judge.report_on("whole", ORIGINAL, {"stack": CHANGED.build}, malloc=malloc)
    assert clock.asked[-1] == ("whole", restarts)


@pytest.mark.parametrize(("gains", "counts"), [([0.2] * 3, True), ([0.2, 0.2, 0.01], False), ([0.0] * 3, False)])
def test_what_is_not_kept_need_not_show_that_it_slowed_nobody_down(
    gains: list[float], counts: bool, tmp_path: Path
) -> None:
    judge, clock = referee(tmp_path, it=gains)
    asked, compare = list[ComparisonRequest](), clock.compare
    clock.compare = lambda request: (asked.append(request), compare(request))[1]  # type: ignore[method-assign]
    judge.hurried = lambda seconds, likely=False: True
    found = judge.compare("it", ORIGINAL, CHANGED.build).only
    assert asked[0].counts(found) is counts


@pytest.mark.parametrize(("gain", "again", "name"), [(9.0, 1.0, "kept"), (11.0, 11.0, "kept"), (11.0, 1.0, "neutral")])
def test_a_gain_beyond_belief_is_what_a_second_check_and_other_restarts_say(
    gain: float, again: float, name: str, tmp_path: Path
) -> None:
    judge, clock = referee(tmp_path, it=[math.log(gain)] * 3, **{"it again": [math.log(again)] * 3})
    checked = list[Build]()
    judge.check = lambda build: (checked.append(build), CHANGED)[1]  # type: ignore[method-assign]
    verdict = judge.time(CHANGED, ORIGINAL, "it")
    assert verdict.name == name and ("before_quarantine" in verdict.evidence) is (gain > 10)
    assert checked == [CHANGED.build] * (gain > 10)
    assert clock.asked[1:] == [("it", 3), ("it again", 3)][: 1 + (gain > 10)]


def test_restarts_that_others_have_begun_are_the_first_of_the_sequence(tmp_path: Path) -> None:
    judge, clock = referee(tmp_path, it=[0.06] * 3, **{"it again": [0.3] * 3})
    begun = compared([0.05, 0.06, 0.12], incumbent=ORIGINAL.key, candidate=CHANGED.build.key)
    judge.begin(begun)
    verdict = judge.time(CHANGED, ORIGINAL, "it")
    assert clock.asked[-1] == ("it", 6) and verdict.evidence["comparison"]["purpose"] == "it"
    assert verdict.speedup is not None and (verdict.name, verdict.speedup.restarts) == ("kept", 6)
    judge.time(CHANGED, ORIGINAL, "it again")
    assert clock.asked[-1][1] == 3, "once"


def test_a_gain_that_a_wide_floor_hides_is_timed_again_above_a_narrower_one(tmp_path: Path) -> None:
    judge, clock = referee(tmp_path, it=[0.035] * 6)
    assert judge.delta > accept.AA_WIDE
    verdict = judge.time(CHANGED, ORIGINAL, "it")
    assert (verdict.name, judge.delta) == ("kept", 0.02)
    assert verdict.evidence["above_more_noise"]["comparison"]["restarts"] == 6
    assert clock.asked == [("aa", 12), ("it", 6), ("aa, longer", 18), (f"it{AGAIN}", 6)]
    assert judge.aa is not None and judge.aa.log_ratios == [*TWELVE, *EIGHTEEN] and len(judge.aa.incumbent_us) == 30
    assert judge.narrow_noise() is judge.noise and len(clock.asked) == 4, "once"


def test_the_floor_stays_as_it_is_where_the_longer_one_fails_or_there_is_no_time_for_it(tmp_path: Path) -> None:
    judge, clock = referee(tmp_path, it=[0.035] * 6)
    before, clock.broken = judge.noise, "aa, longer"
    assert judge.time(CHANGED, ORIGINAL, "it").name == "neutral"
    assert judge.noise == before and clock.asked[-1][0] == "aa, longer"
    judge, clock = referee(tmp_path, it=[0.035] * 6)
    judge.hurried = lambda seconds, likely=False: seconds >= 180.0
    assert judge.time(CHANGED, ORIGINAL, "it").name == "neutral" and clock.asked[-1][0] == "it"


@pytest.mark.parametrize(
    ("name", "ratio", "restarts", "aa"),
    [
        ("neutral", 0.001, 3, TWELVE),
        ("slower", -0.3, 3, TWELVE),
        ("kept", 0.5, 3, TWELVE),
        ("kept", 0.1, 6, TWELVE),
        ("neutral", 0.021, 6, [0.025, -0.025] * 6),
    ],
)
def test_what_no_narrower_floor_would_show_is_timed_once(
    tmp_path: Path, name: str, ratio: float, restarts: int, aa: Sequence[float]
) -> None:
    judge, clock = referee(tmp_path, aa, it=[ratio] * 6)
    assert judge.time(CHANGED, ORIGINAL, "it").name == name
    assert clock.asked == [("aa", 12), ("it", restarts)]


def test_nothing_is_dropped_by_a_floor_that_is_wider_than_it_need_be(tmp_path: Path) -> None:
    judge, clock = referee(tmp_path, **{"leave out one": [0.03] * 6})
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    assert judge.aa is not None
    measurements.keep(SessionStart(aa=judge.aa, own_tests=OwnTests(note="none")), run_dir / "session.json")
    ctx = one_context(
        referee=judge, of=lambda commit: CHANGED.build, say=lambda *said: None, budget=Budget(), run_dir=run_dir
    )
    assert leave_one_out._judge(ctx, "one", "0" * 40, ORIGINAL).name == "slower", "it stays"
    assert clock.asked[-1][0] == "aa, longer"
    known = measurements.session_start(run_dir)
    assert known is not None and known.aa == judge.aa, "a run that goes on judges by it"
