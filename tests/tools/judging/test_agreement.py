"""An incumbent that is slow only beside a candidate is being slowed down; one that is slow by itself, too, is not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tools.judging.agreement import PACE_REPEATS, Doubt, check, is_in_question
from tools.judging.clock import INCUMBENT, Restart, Session, Side
from tools.judging.comparison import Comparison
from tools.judging.measure import LiveClock, Request
from tools.judging.referee import _failed
from tools.judging.worker import Build

KNOWN_US = 100.0
BUILD = Build("incumbent", Path("/nowhere"))
UNUSED: Any = None


@dataclass
class Paced(Session):
    """Restarts in which the incumbent takes so long beside the candidate, and so long alone."""

    beside_us: float = 0.0
    alone_us: float = 0.0

    def restart(self) -> Restart:
        us = self.beside_us if len(self.builds) > 1 else self.alone_us
        return Restart({INCUMBENT: Side({0: [round(1000 * us)]}, {0: [0]})}, 0.0)


def session(beside_us: float, alone_us: float) -> Paced:
    builds = {INCUMBENT: BUILD, "candidate": BUILD}
    return Paced(UNUSED, UNUSED, builds, UNUSED, UNUSED, beside_us=beside_us, alone_us=alone_us)


def compared(incumbent_us: float) -> Comparison:
    return Comparison(
        purpose="screen", incumbent=BUILD.key, candidate="candidate", incumbent_us=[[incumbent_us]],
        candidate_us=[[incumbent_us / 2]], case_log_ratios=[[math.log(2)]],
    )  # fmt: skip


@pytest.fixture
def clock() -> LiveClock:
    @dataclass
    class CPU:
        device: str = "cpu"

    made = LiveClock(UNUSED, UNUSED, UNUSED, Path("/nowhere"), UNUSED, lambda: None, {BUILD.key: [[KNOWN_US]]})
    return replace(made, workload=CPU())  # type: ignore[arg-type]


def test_as_fast_as_it_is_known_to_be(clock: LiveClock) -> None:
    found = compared(1.05 * KNOWN_US)
    assert check(found, session(999.0, 1.0), clock.known_us) is None  # nobody asks
    assert found.failed == ""


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


def test_slow_only_beside_the_candidate_is_a_doubt_that_blames_it(clock: LiveClock) -> None:
    found = compared(1.5 * KNOWN_US)
    doubt = check(found, session(150.0, 100.0), clock.known_us)
    assert doubt is not None and doubt.blames and doubt.repeats == 1
    assert "it is being slowed down" in doubt.why


def test_slow_alone_too_is_the_machines_new_pace(clock: LiveClock) -> None:
    found = compared(1.5 * KNOWN_US)
    assert check(found, session(150.0, 150.0), clock.known_us) is None
    assert found.failed == "" and clock.known_us[BUILD.key] == [[150.0]]


def test_slow_then_and_no_longer_is_a_doubt_that_blames_nobody(clock: LiveClock) -> None:
    found = compared(1.5 * KNOWN_US)
    doubt = check(found, session(100.0, 100.0), clock.known_us)
    assert doubt is not None and not doubt.blames
    assert "changes its pace: what took 150 us a call takes 100 us afterwards" in doubt.why
    assert found.failed == ""


@pytest.mark.parametrize(
    ("doubt", "most", "verdict"),
    [(Doubt("the machine changes its pace", blames=False, repeats=PACE_REPEATS), PACE_REPEATS, "inconclusive"),
     (Doubt("beside it the disk gets full"), 1, "refused")],
)  # fmt: skip
@pytest.mark.parametrize("settles", [True, False])
def test_what_is_doubted_is_measured_anew_and_then_decided(
    clock: LiveClock, monkeypatch: pytest.MonkeyPatch, doubt: Doubt, most: int, verdict: str, settles: bool
) -> None:
    answers = [doubt] * (most if settles else most + 1)

    def measure(self: LiveClock, request: Request, found: Any, outputs: Any) -> Doubt | None:
        return answers.pop(0) if answers else None

    monkeypatch.setattr(LiveClock, "_measure", measure)
    told: list[str] = []
    found = clock.compare(Request("doubted", BUILD, {"candidate": BUILD}, bool, doing=told.append)).only
    assert answers == []
    assert told == [f"measuring anew: {doubt.why}"] * most
    failed = _failed(found, {})
    assert (failed.name if failed else None) == (None if settles else verdict)
