"""When the device worked and when it waited, from the launches of a trace.

Does not add up what overlaps: two streams that work at once are busy once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tools.profiler.trace import Launch


@dataclass(frozen=True)
class Timeline:
    """Of a call, the mean of all that were profiled."""

    busy_us: float
    span_us: float  # from the first launch's start to the last one's end
    gap_us: float | None  # median, between launches that follow each other
    launches: float


def of(launches: Sequence[Launch], calls: int) -> Timeline:
    """`calls` is how many were profiled; where no launch tells its call, all are taken for one series."""
    if not launches:
        return Timeline(0.0, 0.0, None, 0.0)
    by_call: dict[int | None, list[Launch]] = defaultdict(list)
    for launch in launches:
        by_call[launch.call].append(launch)
    parts = [found for call, found in by_call.items() if call is not None] or [list(launches)]
    count = max(calls, 1)
    gaps = [gap for part in parts for gap in _gaps(part)]
    counted = sum(map(len, parts))
    return Timeline(
        busy_us=_union(launches) / count,
        span_us=sum(map(_span, parts)) / (len(parts) if len(parts) > 1 or counted < len(launches) else count),
        gap_us=median(gaps) if gaps else None,
        launches=len(launches) / count,
    )


def _span(launches: Iterable[Launch]) -> float:
    found = list(launches)
    return max(each.start_us + each.duration_us for each in found) - min(each.start_us for each in found)


def _union(launches: Iterable[Launch]) -> float:
    total, until = 0.0, float("-inf")
    for launch in sorted(launches, key=lambda each: each.start_us):
        end = launch.start_us + launch.duration_us
        total += max(0.0, end - max(launch.start_us, until))
        until = max(until, end)
    return total


def _gaps(launches: Iterable[Launch]) -> Iterable[float]:
    """Between the end of one and the start of the next, on whatever stream; what overlaps has none."""
    until: float | None = None
    for launch in sorted(launches, key=lambda each: each.start_us):
        if until is not None and launch.start_us > until:
            yield launch.start_us - until
        until = max(until or 0.0, launch.start_us + launch.duration_us)
