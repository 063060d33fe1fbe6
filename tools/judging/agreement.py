"""Whether a candidate slows the incumbent down, by what it takes alone and beside the candidate in turns.

Refuses to take a machine that changes its pace for a cheat.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import NamedTuple

from tools.errors import IncumbentFails
from tools.judging.clock import INCUMBENT, Restart, Session, SideFault
from tools.judging.comparison import Comparison

AGREEMENT = 1.1
TRIALS = 3
PACE_REPEATS = 3  # of a comparison during which the machine seems to have changed its pace
Known = dict[str, list[list[float]]]  # by the key of a build: microseconds of a call, by restart and case


class Doubt(NamedTuple):
    """Why a comparison cannot be relied on; it is made anew, and then the candidate is refused, if that `blames` it."""

    why: str
    blames: bool = True
    repeats: int = 1

    def tell(self, comparison: Comparison) -> None:
        if self.blames:
            comparison.refused = comparison.refused or self.why
        else:
            comparison.unsettled = self.why


def _change_of_pace(was_us: float, is_us: float) -> Doubt:
    """Told when the incumbent was slow and, beside the same candidate, no longer is."""
    why = f"the machine changes its pace: what took {was_us:.0f} us a call takes {is_us:.0f} us afterwards, with both"
    return Doubt(why, blames=False, repeats=PACE_REPEATS)


def _slowed_down(beside_us: float, alone_us: float) -> Doubt:
    """Told when it is slow beside the candidate in every turn and fast alone in every other one.

    A machine can keep such a rhythm for once, so that the comparison is made anew before anybody is to blame.
    """
    return Doubt(
        f"beside this candidate the incumbent takes {beside_us:.0f} us a call, alone {alone_us:.0f} us: "
        "it is being slowed down"
    )


def is_in_question(found: Comparison, known_us: Known) -> bool:
    """Whether the incumbent, beside a candidate that gains, was slower than it is known to be."""
    known, seen = known_us.get(found.incumbent), found.median_us("incumbent")
    slow = known and any(s > AGREEMENT * median(k) for s, k in zip(seen, zip(*known, strict=True), strict=True))
    return bool(slow) and median(found.log_ratios) > 0


def check(found: Comparison, beside: Session, known_us: Known) -> Doubt | None:
    """Beside a candidate that gains, the incumbent must be as fast as it is known to be.

    If not, it is timed alone and beside it in turns: a machine that has changed its pace changes it for both. The
    first turn in which it is as fast beside the candidate as alone settles that it is not being slowed down now.
    Returns why the comparison cannot be relied on, if so.
    """
    if not is_in_question(found, known_us):
        return None
    seen = found.median_us("incumbent")
    beside.doing("the stack below it was slower than before: timing that alone and beside it in turns")
    alone = replace(beside, builds={INCUMBENT: beside.builds[INCUMBENT]}, keep=None)
    beside_us, alone_us = list[list[float]](), list[list[float]]()
    for _ in range(TRIALS):
        beside_us.append(_incumbent_us(beside.restart()))
        try:
            alone_us.append(_incumbent_us(alone.restart()))
        except SideFault as fault:
            raise IncumbentFails(f"What is to be improved fails when it is timed: {fault.fault}") from fault
        with_it, without = list(zip(*beside_us, strict=True)), list(zip(*alone_us, strict=True))
        slowed = [(w, a) for w, a in zip(with_it, without, strict=True) if min(w) > AGREEMENT * max(a)]
        if not slowed:  # nor will more turns make it so
            known_us[found.incumbent] = alone_us
            pace = [median(times) for times in without]
            was = [(s, p) for s, p in zip(seen, pace, strict=True) if s > AGREEMENT * p]
            return _change_of_pace(*was[0]) if was else None
    return _slowed_down(median(slowed[0][0]), median(slowed[0][1]))


def _incumbent_us(restart: Restart) -> list[float]:
    side = restart.sides[INCUMBENT]
    return [side.median_us(case) for case in sorted(side.call_ns)]
