"""Does a candidate slow the incumbent down? The incumbent's times beside it, against those beside its own copies.

A machine that changes its pace is neither a cheat nor a gain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Literal, NamedTuple

from tools.errors import IncumbentFails
from tools.judging.clock import Session, SideFault, Tripwire
from tools.judging.comparison import INCUMBENT, Comparison, medians, medians_us

AGREEMENT = 1.1
TURNS = 3  # restarts beside its own copies; up to as many again where those do not settle it
Known = dict[str, list[list[float]]]  # by the key of a build: microseconds of a call, by worker and case
Cause = Literal["fails beside it", "slowed down", "pace", "guard"]
REPEATS: dict[Cause, int] = {"fails beside it": 1, "slowed down": 2, "pace": 3, "guard": 2}  # of a doubted comparison
NOBODY: tuple[Cause, ...] = ("pace", "guard")  # is to blame: what stays doubted is inconclusive


class Doubt(NamedTuple):
    """Why a comparison cannot be relied on: it is repeated, and what is doubted for the same cause then is decided."""

    cause: Cause
    why: str
    pace_us: Sequence[float] = ()  # of the incumbent where nothing else was timed beside it, by case

    def tell(self, comparison: Comparison) -> None:
        if self.cause in NOBODY:
            comparison.unsettled, comparison.pace_us = self.why, list(self.pace_us)
        else:
            comparison.refused = comparison.refused or self.why


def of_incumbent(fault: SideFault) -> Doubt:
    """A guard that fires on the incumbent, or on a copy of it, is a fault of the measurement.

    Raises: IncumbentFails for any other fault: it does not run.
    """
    if not isinstance(fault.fault, Tripwire):
        raise IncumbentFails(f"What is to be improved fails when it is timed: {fault.fault}") from fault
    return Doubt("guard", f"a guard fired on what is to be improved: {fault.fault}")


def is_in_question(found: Comparison, known_us: Known) -> bool:
    """Whether the incumbent, beside a candidate that gains, was slower than it is known to be."""
    known = known_us.get(found.incumbent)
    return bool(known and _slower(found.incumbent_us, known)) and median(found.log_ratios) > 0.0


def at_known_pace(found: Comparison, known_us: Known) -> Comparison:
    """As if the incumbent had been as fast as it is known to be, in every restart: what slowed it down, whatever that
    was, gains nothing. Itself where that is not in question.
    """
    if not is_in_question(found, known_us):
        return found
    return found.model_copy(update={"pace_us": medians(known_us[found.incumbent])}).at_pace()


def check(found: Comparison, beside: Session, known_us: Known, *, has_time: bool = True) -> Doubt | None:
    """Beside a candidate that gains, the incumbent must be as fast as it is known to be.

    If not, it is timed beside as many copies of itself: a process that takes turns with others finds colder caches
    than one that runs alone. If it is as slow there, it was not slowed down. These times replace what was known.
    Returns why the comparison cannot be relied on, if so; where there is no time to find out, that it took longer.
    Raises: IncumbentFails.
    """
    if not is_in_question(found, known_us):
        return None
    if not has_time:
        slow, before = (median(times) for times in _slower(found.incumbent_us, known_us[found.incumbent])[0])
        told = f"beside this candidate the incumbent takes {slow:.0f} us a call, before {before:.0f} us"
        return Doubt("pace", f"{told}, and there was no time to find out why", medians(known_us[found.incumbent]))
    beside.doing("the stack below it was slower than before: timing that beside its own copies")
    build, known = beside.builds[INCUMBENT], known_us[found.incumbent]
    copies = {INCUMBENT: build, **{f"copy {number}": build for number in range(1, len(beside.builds))}}
    among: list[list[float]] = []
    with contextlib.closing(replace(beside, builds=copies, keep=None, outputs=[])) as control:
        for turn in range(1, 2 * TURNS + 1):
            try:
                among += [medians_us(side.call_ns) for side in control.restart().sides.values()]
            except SideFault as fault:
                return of_incumbent(fault)
            if turn >= TURNS and not _slower(found.incumbent_us, among):
                break
    known_us[found.incumbent] = among
    return _doubt(found.incumbent_us, among, known)


def _doubt(seen: list[list[float]], among: list[list[float]], known: list[list[float]]) -> Doubt | None:
    """Slow in every restart beside the candidate and in none among its copies: it is being slowed down. The comparison
    is repeated before the candidate is blamed. Slow in some restarts only: the machine may have changed its pace.
    """
    slower = _slower(seen, among)
    if not slower:
        return None
    apart = [(s, a) for s, a in slower if min(s) > max(a)]
    with_it, without = (median(times) for times in (apart or slower)[0])
    took = f"beside this candidate the incumbent takes {with_it:.0f} us a call, beside its own copies {without:.0f} us"
    if apart:
        return Doubt("slowed down", f"{took}: it is being slowed down")
    # the machine may be slower by now, or may have been slower then
    pace_us = [min(pair) for pair in zip(medians(among), medians(known), strict=True)]
    return Doubt("pace", f"{took}, but not in every restart: the machine changes its pace", pace_us)


def _slower(seen: list[list[float]], known: list[list[float]]) -> list[tuple[Sequence[float], Sequence[float]]]:
    """The times of the cases that are slower than they are known to be, and what is known of them."""
    cases = zip(zip(*seen, strict=True), zip(*known, strict=True), strict=True)
    return [(s, k) for s, k in cases if median(s) > AGREEMENT * median(k)]
