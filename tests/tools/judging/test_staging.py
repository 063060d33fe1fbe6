"""What is gained in a call and lost in staging is no gain, however little beside staging it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tools.judging.comparison import Comparison
from tools.judging.referee import Referee
from tools.judging.timings import Restart, Side
from tools.judging.verdict import Verdict
from tools.judging.workload import Case

CALL_NS, STAGE_NS = 100_000, 2_000_000


def judged(*stages: int) -> Verdict:
    """Of calls that take a fifth less, where staging takes so long in each restart."""
    found = Comparison(purpose="confirm", incumbent="one", candidate="two")
    for stage_ns in stages:
        sides = {"incumbent": Side({0: [CALL_NS]}, {0: [STAGE_NS]}), "two": Side({0: [80_000]}, {0: [stage_ns]})}
        found.add(Restart(sides, 1.0), "two")
    noise = SimpleNamespace(usable=False, reason="as it is")  # so that all that passes this ends there
    referee: Any = SimpleNamespace(delta=0.02, workload=SimpleNamespace(cases=[Case("", {})]), noise=noise)
    return Referee._kept(referee, SimpleNamespace(), found, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("longer_ns", [20_001, 59_000])
def test_work_that_is_hidden_in_the_slack_of_staging_gains_nothing(longer_ns: int) -> None:
    assert judged(*[STAGE_NS + longer_ns] * 6).name == "neutral"


def test_what_staging_takes_longer_by_chance_takes_no_gain_away() -> None:
    assert judged(*[STAGE_NS + 10_000] * 6).name == "inconclusive"
    assert judged(*[STAGE_NS + 50_000, STAGE_NS - 50_000] * 3).name == "inconclusive"
    assert judged(*[STAGE_NS - 50_000] * 6).name == "inconclusive"


def test_what_was_not_staged_is_not_asked() -> None:
    assert Comparison(purpose="", incumbent="", candidate="", case_log_ratios=[[0.1]]).staged_log_ratios == []
