"""Numbers are said with their unit and never better than measured; foreign text stays on its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.reporting import wording
from tools.judging.accept import SpeedupInterval


def interval(median: float, low: float, high: float) -> SpeedupInterval:
    return SpeedupInterval(median=median, ci_low=low, ci_high=high, restarts=12, noise_floor=0.02)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (interval(1.324, 1.28, 1.37), "1.32× (1.28 to 1.37)"),
        (interval(1.32, 1.296, 1.361), "1.32× (1.29 to 1.37)"),
        (interval(1.0123, 1.0101, 1.0156), "1.012× (1.010 to 1.016)"),
    ],
    ids=["with its interval", "rounded outwards", "narrow"],
)
def test_a_speedup_carries_its_interval(measured: SpeedupInterval, said: str) -> None:
    assert wording.speedup(measured) == said


@given(st.floats(0.01, 1000), st.floats(0, 1), st.floats(0, 1))
def test_what_is_said_contains_what_was_measured(median: float, below: float, above: float) -> None:
    low, high = median * (1 - below / 2), median * (1 + above)
    said_low, said_high = wording.speedup(interval(median, low, high)).split("(")[1].rstrip(")").split(" to ")
    assert float(said_low) <= low + 1e-6 and float(said_high) >= high - 1e-6


@pytest.mark.parametrize(
    ("latency_us", "said"), [(0.5, "0.50 µs"), (853.2, "853 µs"), (12_340, "12.3 ms"), (1_240_000, "1.24 s")]
)
def test_a_latency_has_the_unit_that_suits_it(latency_us: float, said: str) -> None:
    assert wording.latency(latency_us) == said
    assert wording.latency(12_340, 12_140, 12_590) == "12.3 ms (12.1 to 12.6)"


@pytest.mark.parametrize(
    ("seconds", "said"), [(4.24, "4.2 s"), (42, "42 s"), (192, "3 min 12 s"), (3900, "1 h 05 min")]
)
def test_a_duration_is_said_as_a_person_would(seconds: float, said: str) -> None:
    assert wording.duration(seconds) == said


@given(st.text())
def test_foreign_text_stays_on_one_line_and_cannot_reach_the_terminal(text: str) -> None:
    assert wording.one_line(text).isprintable()


def test_a_long_line_is_cut_where_asked() -> None:
    assert wording.one_line("a\x1b[31mb\nc d", 6) == "a [31…"
