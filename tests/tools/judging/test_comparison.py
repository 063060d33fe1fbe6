"""What is gained in a call and lost in staging or loading is no gain, however little beside these it is."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tools.judging.compared import compared
from tools.judging.comparison import Comparison, Restart, Side
from tools.judging.referee import Referee
from tools.judging.script import Case
from tools.judging.verdict import Verdict


def ratios(candidate: Side, load_ns: list[int] | None = None) -> tuple[float, float]:
    """Of the medians and of all calls together, beside an incumbent that takes 100 ns to call and to stage."""
    count = len(candidate.call_ns[0])
    incumbent = Side({0: [100] * count}, {0: [100] * count}, {0: load_ns or []})
    restart = Restart({"incumbent": incumbent, "side": candidate}, 1.0)
    return restart.log_ratios("side")[0], restart.total_log_ratios("side")[0]


def test_all_timed_calls_together_count_with_what_their_staging_takes_longer() -> None:
    assert ratios(Side({0: [80] * 8}, {0: [100] * 8}))[1] == pytest.approx(math.log(1.25))
    moved = Side({0: [80] * 8}, {0: [100] * 6 + [180] * 2})  # where a median does not see it
    assert ratios(moved)[1] == pytest.approx(math.log(800 / (640 + 960 - 1.03 * 800)))
    assert ratios(Side({0: [100] * 8}, {0: [10] * 8}))[1] == 0.0


@pytest.mark.parametrize(
    ("load_ns", "gains"),
    [([580] * 4, [1.25, 1.25]), ([620] * 4, [1.0, 1.0]), ([400, 400, 400, 1400], [1.25, 400 / (320 + 2600 - 2400)])],
)
def test_longer_loading_counts_beyond_what_it_varies_by_itself(load_ns: list[int], gains: list[float]) -> None:
    loading = Side({0: [80] * 4}, {0: [100] * 4}, {0: load_ns})
    assert ratios(loading, [400] * 4) == pytest.approx([math.log(gain) for gain in gains])


def test_what_loads_the_machine_for_some_rounds_is_in_both_sides_of_them() -> None:
    """Five rounds of two calls; during two and a half of them all calls take three times as long."""
    incumbent = Side({0: [100, 104, 100, 104, 300, 312, 300, 312, 300, 104]}, calls={0: 2})
    candidate = Side({0: [80, 82, 80, 82, 240, 246, 80, 82, 240, 246]}, calls={0: 2})
    restart = Restart({"incumbent": incumbent, "side": candidate}, 1.0)
    assert restart.log_ratios("side") == pytest.approx([math.log(102 / 81)])
    assert restart.total_log_ratios("side") == pytest.approx([math.log(2036 / 1458)])


CALL_NS, STAGE_NS = 100_000, 2_000_000


def judged(*longer_ns: int) -> Verdict:
    """Of calls that take a fifth less, where staging takes so much longer in each restart."""
    found = Comparison(purpose="confirm", incumbent="one", candidate="two")
    for longer in longer_ns:
        sides = {
            "incumbent": Side({0: [CALL_NS]}, {0: [STAGE_NS]}),
            "two": Side({0: [80_000]}, {0: [STAGE_NS + longer]}),
        }
        found.add(Restart(sides, 1.0), "two")
    noise = SimpleNamespace(usable=False, reason="as it is")  # so that all that passes this ends there
    referee: Any = SimpleNamespace(delta=0.02, workload=SimpleNamespace(cases=[Case("", {})]), noise=noise)
    build: Any = SimpleNamespace()
    return Referee._kept(referee, build, found, {})


def test_work_that_is_hidden_in_the_slack_of_staging_gains_nothing_and_chance_takes_no_gain_away() -> None:
    for hidden in (20_001, 59_000):
        assert judged(*[hidden] * 6).name == "neutral"
    for chance in ([10_000] * 6, [50_000, -50_000] * 3, [-50_000] * 6):
        assert judged(*chance).name == "inconclusive"
    assert Comparison(purpose="", incumbent="", candidate="", case_log_ratios=[[0.1]]).staged_log_ratios == []


def test_one_change_over_another_counts_the_restarts_that_both_were_in() -> None:
    """One that has enough is in no further restart."""
    few, many = (compared([gain] * n, wall_s=10.0 * n, candidate_us=[[1.0]] * n) for gain, n in ((0.5, 6), (0.2, 12)))
    for one, other, gain in ((few, many, 0.3), (many, few, -0.3)):
        found = one.over(other)
        assert found.log_ratios == found.total_log_ratios == pytest.approx([gain] * 6)
        assert (len(found.incumbent_us), len(found.candidate_us), found.wall_s) == (6, 6, 60.0)
