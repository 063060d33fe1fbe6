"""The accept rule: what it keeps, what it never keeps, and that its promised error is its error."""

from __future__ import annotations

import math
import random

import pytest

from tools.judging import accept, measure
from tools.judging.measure import enough_for_screen

BAR = math.log1p(0.02)


def test_a_change_at_the_noise_floor_is_kept_at_most_in_one_of_forty_seven_sessions() -> None:
    # by counting: each restart is above the bar with probability one half; giving up early only makes it less
    bound = 1 / 64 + 13 / 4096 + sum(math.comb(30, i) for i in range(8)) / 2**30
    assert bound < 0.022
    rng, kept, sessions = random.Random(7), 0, 20_000
    for _ in range(sessions):
        ratios: list[float] = []
        for count in sorted(accept.LOOKS):
            while len(ratios) < count:
                ratios.append(BAR + rng.choice([-1, 1]) * rng.expovariate(100))
            outcome = accept.look(ratios, 0.02)
            if outcome != "continue":
                break
        kept += outcome == "kept"
    assert 1 / 64 - 0.004 < kept / sessions < bound + 0.003


def test_a_large_effect_is_decided_at_the_first_look() -> None:
    assert accept.look([0.10, 0.09, 0.12, 0.10, 0.11, 0.08], 0.02) == "kept"


def test_one_restart_that_goes_the_other_way_delays_a_small_effect() -> None:
    ratios = [0.05, 0.04, 0.05, -0.01, 0.05, 0.05]
    assert accept.look(ratios, 0.02) == "continue"
    assert accept.look([*ratios, 0.05, 0.05, 0.04, 0.05, 0.05, 0.05], 0.02) == "kept"
    assert accept.look([*ratios, 0.05, 0.05, 0.04, 0.05, 0.05, -0.02], 0.02) == "continue"


def test_no_gain_ends_at_the_first_look_and_a_loss_is_called_one() -> None:
    assert accept.look([0.0, 0.01, -0.01, 0.0, 0.01, -0.02], 0.02) == "neutral"
    assert accept.look([-0.05] * 6, 0.02) == "slower"
    assert accept.look([-0.05] * 5 + [0.0], 0.02) == "neutral"


def test_an_effect_around_the_bar_is_given_up_when_half_of_the_restarts_lie_below_it() -> None:
    assert accept.look([0.03, 0.01, 0.03, 0.01, 0.01, 0.03], 0.02) == "neutral"
    assert accept.look([0.03, 0.03, 0.03, 0.01, 0.01, 0.03], 0.02) == "continue"
    assert accept.look([0.03] * 6 + [0.01] * 6, 0.02) == "neutral"


def test_the_last_look_always_decides() -> None:
    assert accept.look([0.03] * 22 + [0.0] * 8, 0.02) == "neutral"
    assert accept.look([0.03] * 23 + [0.0] * 7, 0.02) == "kept"


@pytest.mark.parametrize("count", [1, 5, 7, 11, 13, 29, 31])
def test_looks_happen_at_six_twelve_and_thirty_restarts_only(count: int) -> None:
    with pytest.raises(ValueError, match="no look"):
        accept.look([0.1] * count, 0.02)


def test_the_interval_is_read_off_the_ordered_restarts() -> None:
    logs = [i / 100 for i in range(12)]
    interval = accept.speedup_interval(logs, 0.02)
    assert (interval.ci_low, interval.ci_high) == (math.exp(0.02), math.exp(0.09))
    assert interval.median == pytest.approx(math.exp(0.055))
    assert (interval.restarts, interval.noise_floor) == (12, 0.02)


def test_the_noise_floor_is_never_below_what_the_device_is_known_for() -> None:
    quiet = accept.noise_floor([0.001, -0.001] * 6, "cpu")
    assert (quiet.delta, quiet.usable) == (0.02, True)
    assert accept.noise_floor([0.001, -0.001] * 6, "cuda").delta == 0.01


def test_an_aa_that_scatters_raises_the_bar() -> None:
    noisy = accept.noise_floor([-0.04, 0.04] * 6, "cpu")
    assert noisy.usable
    assert noisy.delta == pytest.approx(math.expm1(0.04))


def test_an_aa_that_leaves_much_open_is_made_longer_once() -> None:
    """At once where it says nothing, later where it may hide a gain."""
    quiet, some, wide = [0.01, -0.01] * 6, [-0.045, 0.045] * 6, [-0.05, 0.05] * 6
    assert accept.enough_for_noise(some, "cpu")
    assert not accept.enough_for_noise(quiet[:-1], "cpu") and accept.enough_for_noise(quiet, "cpu")
    assert not accept.enough_for_noise(wide, "cpu")
    assert not accept.enough_for_noise([*wide, *quiet], "cpu") and not accept.enough_for_noise([*quiet, 0.3], "cpu")
    assert accept.enough_for_noise([*wide, *quiet, *quiet[:6]], "cpu")
    assert accept.enough_for_noise([*wide, *wide, *wide[:6]], "cpu"), "however wide it stays"
    gain, none = accept.speedup_interval([0.03] * 6), accept.speedup_interval([0.01] * 6)
    short, still, long = (accept.noise_floor(aa, "cpu") for aa in (some, quiet, [*some, *some, *some[:6]]))
    assert accept.may_hide(short, gain, "cpu") and not accept.may_hide(short, none, "cpu")
    assert not accept.may_hide(still, gain, "cpu")
    assert not accept.may_hide(long, gain, "cpu"), "it is as long as it gets"


def test_a_reported_number_gets_the_second_look_where_the_first_is_open_or_wide() -> None:
    clear, open_, wide = [0.50, 0.52, 0.51, 0.53, 0.50, 0.54], [0.05, 0.01, 0.04, 0.06, 0.05, 0.04], [0.4, *[0.6] * 5]
    assert not accept.enough_for_report(clear[:5], 0.02) and accept.enough_for_report(clear, 0.02)
    for first in (open_, wide):
        assert not accept.enough_for_report(first, 0.02) and not accept.enough_for_report([*first, *clear[:5]], 0.02)
        assert accept.enough_for_report([*first, *first], 0.02), "however wide it stays"
    assert accept.enough_for_report(wide, 0.02, wide_serves=True)
    assert not accept.enough_for_report(open_, 0.02, wide_serves=True)


def test_a_reported_number_around_1_gets_the_second_look_and_does_not_hold() -> None:
    around, above = [0.001, -0.001, 0.002, -0.002, 0.001, 0.0], [0.001, 0.002, 0.003, 0.001, 0.002, 0.001]
    assert not accept.enough_for_report(around, 0.02) and accept.enough_for_report(above, 0.02)
    assert accept.enough_for_report([*around, *around], 0.02), "however often"
    assert accept.holds(above) and not accept.holds([*around, *around]) and not accept.holds([-each for each in above])


def test_an_aa_that_scatters_too_much_or_is_off_can_keep_nothing() -> None:
    assert not accept.noise_floor([-0.08, 0.08] * 6, "cpu").usable
    assert not accept.noise_floor([0.05, 0.06] * 6, "cpu").usable
    # off by less than the floor is what one in ten honest sessions looks like
    assert accept.noise_floor([0.005, 0.010] * 6, "cpu").usable


def test_a_screen_lets_through_what_may_be_a_gain_and_never_keeps() -> None:
    assert accept.screen([0.03, 0.02, -0.01], 0.02) == "continue"
    assert accept.screen([0.005, 0.002, 0.03], 0.02) == "neutral"
    assert accept.screen([-0.05, -0.06, -0.04], 0.02) == "slower"


def test_a_screen_needs_three_restarts_unless_the_first_is_plain() -> None:
    assert not accept.enough_for_screen([0.05], 0.02)
    assert not accept.enough_for_screen([-0.5, 0.01], 0.02)
    assert accept.enough_for_screen([0.01, 0.01, 0.01], 0.02)
    assert accept.enough_for_screen([0.2], 0.02)


def test_a_screen_that_takes_minutes_ends_where_no_gain_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = enough_for_screen(0.02)
    assert not enough([0.0]) and not enough([-0.5])
    monkeypatch.setattr(measure, "LONG_SCREEN_S", -1.0)
    assert enough([0.0]) and enough([-0.5, 0.0]) and not enough([0.03])


def test_a_workload_regresses_when_even_its_upper_bound_is_below_98_percent() -> None:
    assert accept.regresses([math.log(0.97)] * 6)
    assert not accept.regresses([math.log(0.97)] * 5 + [0.0])


def test_a_commit_is_dropped_only_when_even_the_upper_bound_of_its_worth_is_below_the_floor() -> None:
    assert accept.still_worth([0.1, 0.1, 0.1], 0.02) == "stays"
    assert accept.still_worth([0.1, 0.01, 0.1], 0.02) == "continue"
    assert accept.still_worth([0.0, 0.01, -0.01, 0.0, 0.01, 0.01], 0.02) == "dropped"
    assert accept.still_worth([0.03, 0.03, 0.03, 0.03, 0.01, 0.01], 0.02) == "stays"
    assert accept.still_worth([0.0, 0.01, 0.0, 0.0, 0.01, 0.03], 0.02) == "continue"
    assert accept.still_worth([0.0] * 10 + [0.03] * 2, 0.02) == "dropped"
    assert accept.still_worth([0.0] * 20 + [0.03] * 10, 0.02) == "stays"


def test_all_calls_together_gain_when_half_of_the_restarts_say_so() -> None:
    assert accept.gains_in_total([0.03, 0.03, 0.03, 0.03, -0.5, -0.5], 0.02)
    assert not accept.gains_in_total([0.03, 0.5, 0.01, 0.01, 0.01, 0.01], 0.02)


def test_restarts_that_fall_short_are_counted() -> None:
    assert accept.short_of([0.5, 0.01, math.log1p(0.02), -0.1], 0.02) == 3


def test_time_counts_from_when_a_comparison_was_begun_last() -> None:
    enough = measure.Stopwatch(lambda ratios, taken_s: taken_s > 1e6)
    enough.begun -= 2e6
    assert enough([0.0])
    enough.begin()
    assert not enough([0.0])
