"""What one restart timed, and the ratios that come of it. Does not give anything for work moved out of the call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

INCUMBENT = "incumbent"  # the name of the side that the others are compared with
STAGING_SLACK = 1.03  # staging of the same code differs by up to 3 % between two workers (180 to 260 us, 2 cores)
LOADING_SLACK = 1.5  # loading 67 MB to a GPU (40 ms) by 12 %; where sides take turns, in other restarts, by 40 %


@dataclass
class Side:
    """One worker's timings in one restart: nanoseconds by case, and how long staging took."""

    call_ns: dict[int, list[int]] = field(default_factory=dict)
    stage_ns: dict[int, list[int]] = field(default_factory=dict)
    load_ns: dict[int, list[int]] = field(default_factory=dict)
    """Of sealed inputs, before they are staged; others are loaded while they are."""

    def begin(self, case: int) -> None:
        self.call_ns[case], self.stage_ns[case], self.load_ns[case] = [], [], []

    def median_us(self, case: int) -> float:
        return median(self.call_ns[case]) / 1e3

    def median_stage_us(self, case: int) -> float:
        return median(self.stage_ns[case]) / 1e3

    def median_load_us(self, case: int) -> float:
        """0 where they were loaded while they were staged."""
        return median(self.load_ns.get(case) or [0]) / 1e3


@dataclass
class Restart:
    """Workers started afresh and timed in turns."""

    sides: dict[str, Side]
    wall_s: float
    prepared_s: float = 0.0  # of it, until its workers were ready

    def log_ratios(self, side: str) -> list[float]:
        """log(incumbent / side) by case: above 0, the side is faster.

        What its staging and loading take longer than the incumbent's counts as part of its call, so that nothing is
        gained by work that is done there. The other way round nothing is given.
        """
        return self._log_ratios(side, median)

    def total_log_ratios(self, side: str) -> list[float]:
        """The same by the sums of all timed calls, stagings and loadings instead of medians."""
        return self._log_ratios(side, sum)

    def _log_ratios(self, side: str, of: Callable[[list[int]], float]) -> list[float]:
        incumbent, candidate = self.sides[INCUMBENT], self.sides[side]
        found = []
        for case in sorted(incumbent.call_ns):
            moved = _longer(candidate.stage_ns, incumbent.stage_ns, case, STAGING_SLACK, of)
            moved += _longer(candidate.load_ns, incumbent.load_ns, case, LOADING_SLACK, of)
            found.append(math.log(of(incumbent.call_ns[case]) / (of(candidate.call_ns[case]) + moved)))
        return found


def _longer(
    mine: dict[int, list[int]], theirs: dict[int, list[int]], case: int, slack: float, of: Callable[[list[int]], float]
) -> float:
    return max(0.0, of(mine.get(case) or [0]) - slack * of(theirs.get(case) or [0]))
