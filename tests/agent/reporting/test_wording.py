"""Numbers are said with their unit and never better than measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.reporting import wording
from tests.agent.reporting.sample_report import interval


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (wording.speedup(interval(1.324, 1.28, 1.37)), "1.32× (1.28 to 1.37)"),
        (wording.speedup(interval(1.0123, 1.0101, 1.0156)), "1.012× (1.010 to 1.016)"),
        (wording.latency(0.5), "0.50 µs"),
        (wording.latency(853.2), "853 µs"),
        (wording.latency(12_340, 12_140, 12_590), "12.3 ms (12.1 to 12.6)"),
        (wording.latency(1_240_000), "1.24 s"),
        (wording.duration(4.24), "4.2 s"),
        (wording.duration(42), "42 s"),
        (wording.duration(192), "3 min 12 s"),
        (wording.duration(3900), "1 h 05 min"),
    ],
)
def test_a_number_has_its_unit_and_its_interval(measured: str, said: str) -> None:
    assert measured == said


@given(st.floats(0.01, 1000), st.floats(0, 1), st.floats(0, 1))
def test_what_is_said_contains_what_was_measured(median: float, below: float, above: float) -> None:
    low, high = median * (1 - below / 2), median * (1 + above)
    said_low, said_high = wording.speedup(interval(median, low, high)).split("(")[1].rstrip(")").split(" to ")
    assert float(said_low) <= low + 1e-6 and float(said_high) >= high - 1e-6
