"""Numbers for a person, with their unit and uncertainty.

A bound of an interval is rounded outwards, so that "1.30" is never said for 1.296.
"""

from __future__ import annotations

import math

from tools.judging.accept import SpeedupInterval


def speedup(measured: SpeedupInterval) -> str:
    """`1.32× (1.28 to 1.37)`; three decimals where two would show no interval at all."""
    low, high = measured.ci_low, measured.ci_high
    digits = 2 if high - low >= 0.02 else 3
    return f"{measured.median:.{digits}f}× ({_down(low, digits)} to {_up(high, digits)})"


def latency(median_us: float, low_us: float | None = None, high_us: float | None = None) -> str:
    """`12.3 ms (12.1 to 12.7)`, in the unit that suits the median."""
    for unit, size_us in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if median_us >= size_us or unit == "µs":
            break
    value = median_us / size_us
    digits = 2 if value < 10 else 1 if value < 100 else 0
    text = f"{value:.{digits}f} {unit}"
    if low_us is None or high_us is None:
        return text
    return f"{text} ({_down(low_us / size_us, digits)} to {_up(high_us / size_us, digits)})"


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 12 s`, `1 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def gibibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


def count(number: int, one: str, many: str = "") -> str:
    """`1 change`, `3 changes`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _down(value: float, digits: int) -> str:
    return f"{math.floor(value * 10**digits + 1e-9) / 10**digits:.{digits}f}"


def _up(value: float, digits: int) -> str:
    return f"{math.ceil(value * 10**digits - 1e-9) / 10**digits:.{digits}f}"
