"""The accept rule: what it keeps, what it never keeps, and that its promised error is its error."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from tools.judging import accept
from tools.judging.measure import enough_to_judge

BAR = math.log1p(0.02)


def test_a_change_at_the_noise_floor_is_kept_at_most_in_one_of_forty_seven_sessions() -> None:
    # by counting: each restart is above the bar with probability one half; giving up early only makes it less
    bound = 1 / 64 + 13 / 4096 + sum(math.comb(30, i) for i in range(8)) / 2**30
    assert bound < 0.022
    rng, kept, sessions = random.Random(7), 0, 20_000
    for _ in range(sessions):
        ratios: list[float] = []
        for count in sorted(accept.LOOKS)[1:]:
            while len(ratios) < count:
                ratios.append(BAR + rng.choice([-1, 1]) * rng.expovariate(100))
            outcome = accept.look(ratios, 0.02)
            if outcome != "continue":
                break
        kept += outcome == "kept"
    assert 1 / 64 - 0.004 < kept / sessions < bound + 0.003


def at_first(aa: int, nth: int) -> float:
    """Chance that three values lie beyond the nth largest of an A/A and the nth smallest, by ranks and signs."""
    among = [math.comb(j + 2, 2) / math.comb(aa + 3, 3) for j in range(aa + 1)]  # so many of it lie farther from 0
    few = [
        sum(math.comb(j, above) for above in range(j + 1) if max(above, j - above) < nth) / 2**j for j in range(aa + 1)
    ]
    return sum(map(math.prod, zip(among, few, strict=True))) / 8


@pytest.mark.parametrize(("aa", "bound"), [(12, 37 / 5824), (30, 0.0212)])
def test_a_change_no_more_than_twice_as_noisy_as_the_aa_is_seldom_kept_at_the_first_look(aa: int, bound: float) -> None:
    assert at_first(aa, accept.INTERVAL[aa]) <= bound + 1e-9
    rng, sessions = random.Random(11), 8_000

    def scatter() -> float:
        return rng.gauss(0, 0.04) * (4 if rng.random() < 0.1 else 1)

    def ends(gain: float | None) -> list[tuple[str, int]]:
        """Outcome and restarts of each session; without a gain the change is worth exactly the floor."""
        found = []
        for _ in range(sessions):
            delta = accept.noise_floor([scatter() for _ in range(aa)], "cpu").delta
            true = math.log1p(delta) if gain is None else gain
            ratios: list[float] = []
            for count in sorted(accept.LOOKS):
                ratios += [true + 2 * scatter() for _ in range(count - len(ratios))]
                if (outcome := accept.look(ratios, delta)) != "continue":
                    break
            found.append((outcome, count))
        return found

    at_the_bar, none = ends(None), ends(0.0)
    assert at_the_bar.count(("kept", 3)) / sessions < bound + 0.003
    assert sum(outcome == "kept" for outcome, _ in at_the_bar) / sessions < bound + 0.0215 + 0.004
    assert sum(outcome == "kept" for outcome, _ in none) / sessions < bound
    assert sum(restarts for _, restarts in ends(math.log(1.5))) / sessions < 4, "what is plain is kept at once"


def test_scatter_that_has_grown_since_the_aa_shows_no_gain() -> None:
    rng, sessions = random.Random(13), 20_000
    for median, bound in ((BAR, 0.6**2 / 8), (0.0, 0.5**2 / 8)):
        for scatter in (0.1, 0.5):
            looks = [accept.look([rng.gauss(median, scatter) for _ in range(3)], 0.02) for _ in range(sessions)]
            assert looks.count("kept") / sessions < bound


ONE_BELOW = [0.05, 0.04, 0.05, -0.01, 0.05, 0.05]


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ([0.10, 0.06, 0.11], "kept"),
        ([0.10, 0.059, 0.11], "continue"),  # three times the bar is 0.0594
        ([0.10, 0.06, 0.13], "continue"),  # too unlike each other
        ([0.011, 0.009, 0.5], "continue"),
        ([0.009, 0.0, 0.5], "neutral"),  # given up: the median is below half the bar
        ([-0.05, -0.06, -0.04], "slower"),
        ([-0.05, -0.06, -0.01], "neutral"),
        ([0.10, 0.09, 0.12, 0.10, 0.11, 0.08], "kept"),
        (ONE_BELOW, "continue"),
        ([*ONE_BELOW, 0.05, 0.05, 0.04, 0.05, 0.05, 0.05], "kept"),
        ([*ONE_BELOW, 0.05, 0.05, 0.04, 0.05, 0.05, -0.02], "continue"),
        ([0.0, 0.01, -0.01, 0.0, 0.01, -0.02], "neutral"),
        ([-0.05] * 6, "slower"),
        ([-0.05] * 5 + [0.0], "neutral"),
        ([0.03, 0.01, 0.03, 0.01, 0.01, 0.03], "neutral"),  # given up: half of the restarts lie below the bar
        ([0.03, 0.03, 0.03, 0.01, 0.01, 0.03], "continue"),
        ([0.03] * 6 + [0.01] * 6, "neutral"),
        ([0.03] * 22 + [0.0] * 8, "neutral"),  # the last look decides
        ([0.03] * 23 + [0.0] * 7, "kept"),
    ],
)
def test_a_look_keeps_gives_up_or_asks_for_the_next(ratios: list[float], outcome: str) -> None:
    assert accept.look(ratios, 0.02) == outcome


def test_the_interval_is_read_off_the_ordered_restarts() -> None:
    interval = accept.speedup_interval([i / 100 for i in range(12)], 0.02)
    assert (interval.ci_low, interval.ci_high) == (math.exp(0.02), math.exp(0.09))
    assert interval.median == pytest.approx(math.exp(0.055))
    assert (interval.restarts, interval.noise_floor) == (12, 0.02)


@pytest.mark.parametrize(
    ("pair", "device", "delta", "usable"),
    [
        ([0.001, -0.001], "cpu", 0.02, True),  # never below what the device is known for
        ([0.001, -0.001], "cuda", 0.01, True),
        ([-0.04, 0.04], "cpu", math.expm1(0.04), True),  # what scatters raises the bar
        ([-0.4, 0.4], "cuda", math.expm1(0.4), True),  # where calls of one process take half as long again as another's
        ([-0.6, 0.6], "cuda", math.expm1(0.6), False),  # too much
        ([0.05, 0.06], "cpu", math.expm1(0.06), False),  # off
        ([0.005, 0.010], "cpu", 0.02, True),  # by less than the floor, as one in ten honest sessions is
    ],
)
def test_the_noise_floor_is_how_far_an_aa_reaches(pair: list[float], device: str, delta: float, usable: bool) -> None:
    found = accept.noise_floor(pair * 6, device)
    assert found.delta == pytest.approx(delta) and found.usable is usable


def test_an_aa_that_may_hide_a_gain_is_made_longer_once() -> None:
    some, quiet = [-0.045, 0.045] * 6, [0.01, -0.01] * 6
    gain, none = accept.speedup_interval([0.03] * 6), accept.speedup_interval([0.01] * 6)
    short, still, long = (accept.noise_floor(aa, "cpu") for aa in (some, quiet, [*some, *some, *some[:6]]))
    assert accept.may_hide(short, gain, "cpu") and not accept.may_hide(short, none, "cpu")
    assert not accept.may_hide(still, gain, "cpu") and not accept.may_hide(long, gain, "cpu")


def test_a_reported_number_gets_the_second_look_where_the_first_is_open_wide_or_around_1() -> None:
    clear, open_, wide = [0.50, 0.52, 0.51, 0.53, 0.50, 0.54], [0.05, 0.01, 0.04, 0.06, 0.05, 0.04], [0.4, *[0.6] * 5]
    around, above = [0.001, -0.001, 0.002, -0.002, 0.001, 0.0], [0.001, 0.002, 0.003, 0.001, 0.002, 0.001]
    assert not accept.enough_for_report(clear[:5], 0.02)
    assert accept.enough_for_report(clear, 0.02) and accept.enough_for_report(above, 0.02)
    for first in (open_, wide, around):
        assert not accept.enough_for_report(first, 0.02) and not accept.enough_for_report([*first, *clear[:5]], 0.02)
        assert accept.enough_for_report([*first, *first], 0.02), "however wide it stays"
    assert accept.enough_for_report(wide, 0.02, wide_serves=True)
    assert not accept.enough_for_report(open_, 0.02, wide_serves=True)
    assert accept.holds(above) and not accept.holds([*around, *around]) and not accept.holds([-each for each in above])


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ([0.1, 0.1, 0.1], "stays"),
        ([0.1, 0.01, 0.1], "continue"),
        ([0.0, 0.01, -0.01], "continue"),  # nothing is dropped for three
        ([0.0, 0.01, -0.01, 0.0, 0.01, 0.01], "dropped"),
        ([0.03, 0.03, 0.03, 0.03, 0.01, 0.01], "stays"),
        ([0.0, 0.01, 0.0, 0.0, 0.01, 0.03], "continue"),
        ([0.0] * 10 + [0.03] * 2, "dropped"),
        ([0.0] * 20 + [0.03] * 10, "stays"),
    ],
)
def test_a_commit_is_dropped_when_its_upper_bound_is_below_the_floor(ratios: list[float], outcome: str) -> None:
    assert accept.still_worth(ratios, 0.02) == outcome


def test_a_gain_must_show_in_each_workload_and_in_all_calls_together() -> None:
    assert accept.regresses([math.log(0.97)] * 6) and not accept.regresses([math.log(0.97)] * 5 + [0.0])
    assert accept.gains_in_total([0.03, 0.03, 0.03, 0.03, -0.5, -0.5], 0.02)
    assert not accept.gains_in_total([0.03, 0.5, 0.01, 0.01, 0.01, 0.01], 0.02)
    assert accept.short_of([0.5, 0.01, math.log1p(0.02), -0.1], 0.02) == 3


@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 11, 13, 29, 31])
def test_looks_happen_at_three_six_twelve_and_thirty_restarts_only(count: int) -> None:
    with pytest.raises(ValueError, match="no look"):
        accept.look([0.1] * count, 0.02)


@pytest.mark.parametrize(
    ("above", "below", "chance"), [(3, 0, 6), (2, 1, 12), (5, 1, 12), (4, 2, 30), (11, 1, 30), (0, 12, 30)]
)
def test_time_is_asked_for_up_to_the_look_that_may_still_keep_it(above: int, below: int, chance: int) -> None:
    """A look at which so many restarts below the bar are too many decides nothing."""
    ratios = [0.1] * above + [0.0] * below
    assert accept.next_chance(ratios, 0.05) == chance
    asked: list[tuple[float, bool]] = []
    found: Any = SimpleNamespace(log_ratios=ratios, wall_s=2.0 * len(ratios))
    enough = enough_to_judge(0.05, lambda *how: bool(asked.append(how)))
    if len(ratios) in accept.LOOKS and accept.look(ratios, 0.05) == "continue":
        assert not enough(found) and asked == [(2.0 * (chance - len(ratios)), not below)]
