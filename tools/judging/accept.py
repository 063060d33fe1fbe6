"""The accept rule: when is a change faster? One rule, one file, pure functions of log ratios.

One number per restart of both workers: log(incumbent's median / candidate's median), above 0 is faster. Each candidate
gets one sequence of fresh restarts, with looks at 3, 6, 12 and 30 and at no other number. It is kept when the smallest
of 3 exceeds three times the bar log(1 + delta), and half of the largest; or when the smallest of 6, the 2nd smallest of
12, the 8th smallest of 30 exceeds the bar.

Chance to be kept for a change whose true median is at delta; giving up early makes it less:
- at 6, 12 and 30, whatever the distribution: 1/64 + 13/4096 + P(Binomial(30, 1/2) <= 7) = 2.1 % at most.
- at 3, if it scatters around its median as the A/A does around 0, or up to twice as much: all of three such values lie
  beyond the 3rd largest and the 3rd smallest of the 12 that delta comes from. Counted by ranks and signs, that is
  37/5824 = 0.6 % at most. With an A/A of 30, whose 10th values count, it is 2.1 %.
- at 3, if it scatters more, as when others begin to load the machine: 0.6 ** 2 / 8 = 4.5 % at most where its density is
  symmetric and has one peak. All must lie above the median, and two not below 1/2.5 of the farthest. With no gain it is
  0.5 ** 2 / 8 = 3.1 %.
Simulated (scatter 1 to 4 %, one restart in ten four times wilder, candidates twice as noisy, A/A of 12): 2.3 % kept at
delta, 0.2 % with no gain; with an A/A of 30, 2.9 % and 0.7 %. A gain of 15 to 50 % takes 3.0 to 5.2 restarts where the
scatter is at most 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict

LOOKS = {3: 1, 6: 1, 12: 2, 30: 8}  # restarts -> which smallest decides
FIRST_LOOK = 3  # so few restarts show a large gain only
PLAIN = 3.0  # bars that all restarts must exceed to be kept at the first look
ALIKE = 2.0  # and the largest of them is less than so many times the smallest
INTERVAL = {3: 1, 6: 1, 12: 3, 30: 10}  # restarts -> which smallest and largest bound the reported interval
REPORT_LOOKS = (6, 12)  # of a number in the report, which needs no decision but an interval
FEWEST_FOR_NOISE = 6  # where there is no time: the floor is then wide, and a fifth of the gains of 10 % is lost
AA_LOOKS = (12, 30)  # of the same code beside itself; the second where the first may hide a gain
REPORT_WIDE = 0.1  # a reported interval whose ends differ by more is worth the second look
AA_WIDE = 0.04  # a floor above this may hide a gain worth having, and may be one bad minute of the machine
FLOOR = {"cuda": 0.01, "cpu": 0.02}  # smallest effect worth claiming: a quiet GPU, a shared CPU
MAX_HALF_WIDTH = 0.5  # an A/A wider than this says nothing; below it the floor is so high that only more counts
REGRESSION = 0.98  # no workload's upper bound may lie below it

Outcome = Literal["kept", "neutral", "slower", "continue"]


class SpeedupInterval(BaseModel):
    """`median`, `ci_low`, `ci_high` are incumbent time over candidate time: above 1 is faster.

    Exact interval for the median over restarts (order statistics): coverage 96.9 % at 6, 96.1 % at 12, 95.7 % at 30;
    of 3 it is the whole range, with 75 %.
    """

    model_config = ConfigDict(frozen=True)

    median: float
    ci_low: float
    ci_high: float
    restarts: int
    noise_floor: float

    def __str__(self) -> str:
        return f"{self.median:.3f}x ({self.ci_low:.3f} to {self.ci_high:.3f}, {self.restarts} restarts)"


@dataclass(frozen=True)
class NoiseFloor:
    """What an A/A comparison of this session allows to claim. `usable` is False when it is inconclusive."""

    delta: float
    interval: SpeedupInterval
    usable: bool
    reason: str = ""


def speedup_interval(log_ratios: Sequence[float], noise_floor: float = 0.0) -> SpeedupInterval:
    """The reported interval. Between looks it is the whole range of what was seen."""
    ordered = sorted(log_ratios)
    if not ordered:
        raise ValueError("no restart was measured")
    k = INTERVAL.get(len(ordered), 1)
    return SpeedupInterval(
        median=math.exp(median(ordered)),
        ci_low=math.exp(ordered[k - 1]),
        ci_high=math.exp(ordered[-k]),
        restarts=len(ordered),
        noise_floor=noise_floor,
    )


def may_hide(noise: NoiseFloor, gain: SpeedupInterval, device: str) -> bool:
    """Whether more restarts of the A/A could show a gain that was not: there is one, and the floor is a wide one."""
    narrower = noise.interval.restarts < max(AA_LOOKS) and noise.delta > AA_WIDE
    return narrower and gain.median > 1 + FLOOR[device]


def noise_floor(log_ratios: Sequence[float], device: str) -> NoiseFloor:
    """Delta from an A/A comparison: the larger of the floor and how far its interval reaches from 1."""
    interval = speedup_interval(log_ratios)
    floor = FLOOR[device]
    reach = max(1 / interval.ci_low, interval.ci_high) - 1
    outside = interval.ci_low > 1 + floor or interval.ci_high < 1 - floor
    half_width = (interval.ci_high - interval.ci_low) / 2
    reason = ""
    if outside:
        reason = f"the same code differs from itself by {interval.median - 1:+.1%}"
    elif half_width > MAX_HALF_WIDTH:
        reason = f"the same code scatters by ±{half_width:.1%}"
    return NoiseFloor(max(floor, reach), interval, not reason, reason)


def enough_for_report(log_ratios: Sequence[float], delta: float, *, wide_serves: bool = False) -> bool:
    """For a number in the report: the first look, or the second where the first leaves it open, around 1 or wide.

    `wide_serves`: an interval may be wide, because there is no time for more.
    """
    first, second = REPORT_LOOKS
    if len(log_ratios) != first:
        return len(log_ratios) >= second
    seen = speedup_interval(log_ratios)
    one_side = seen.ci_low > 1 or seen.ci_high < 1
    narrow = wide_serves or seen.ci_high / seen.ci_low <= 1 + REPORT_WIDE
    return look(log_ratios, delta) != "continue" and one_side and narrow


def next_look(restarts: int) -> int:
    """The first look at no fewer restarts than that."""
    return next(count for count in LOOKS if count >= restarts)


def next_chance(log_ratios: Sequence[float], delta: float) -> int:
    """The next look that may still keep it, by how many restarts lie below the bar; the last where none may."""
    below = sum(ratio <= math.log1p(delta) for ratio in log_ratios)
    return next((count for count, k in LOOKS.items() if count > len(log_ratios) and below < k), max(LOOKS))


def look(log_ratios: Sequence[float], delta: float) -> Outcome:
    """The decision at a look; "continue" asks for the next one.

    Stops early the other way round as well: when half of the restarts lie below the bar, at the first look below half
    of it, no gain will be shown (one that nine of ten restarts show is given up so in at most 2.8 % at 3, 1.6 % at 6).
    Stopping there can only keep less.
    Raises: ValueError at a number of restarts that is no look.
    """
    count = len(log_ratios)
    if count not in LOOKS:
        raise ValueError(f"{count} restarts is no look; looks are at {sorted(LOOKS)}")
    ordered, k, bar = sorted(log_ratios), LOOKS[count], math.log1p(delta)
    first = count == FIRST_LOOK
    if ordered[k - 1] > (max(PLAIN * bar, ordered[-1] / ALIKE) if first else bar):
        return "kept"
    if ordered[-k] < -bar:
        return "slower"
    hopeless = median(ordered) <= bar / 2 if first else ordered[count // 2 - 1] < bar
    return "neutral" if hopeless or count == max(LOOKS) else "continue"


def still_worth(log_ratios: Sequence[float], delta: float) -> Literal["stays", "dropped", "continue"]:
    """Does a commit still earn its place? From log(time without it / time with it).

    It is dropped only when the upper bound of its worth lies below the bar, and never at the first look.
    """
    count, bar = len(log_ratios), math.log1p(delta)
    if count == FIRST_LOOK:
        return "stays" if min(log_ratios) > bar else "continue"
    if count not in LOOKS:
        return "continue"
    if math.log(speedup_interval(log_ratios).ci_high) < bar:
        return "dropped"
    return "stays" if median(log_ratios) >= bar or count == max(LOOKS) else "continue"


def holds(log_ratios: Sequence[float]) -> bool:
    """Whether what was kept is faster when it is measured once more: the reported interval lies above 1."""
    return speedup_interval(log_ratios).ci_low > 1


def is_open(log_ratios: Sequence[float]) -> bool:
    """Whether most restarts of a hurried report are faster, and not all: so few show neither."""
    return len(log_ratios) < min(REPORT_LOOKS) and median(log_ratios) > 0 and not holds(log_ratios)


def regresses(log_ratios: Sequence[float]) -> bool:
    """Whether a single workload got slower: the upper bound of its speedup lies below `REGRESSION`."""
    return speedup_interval(log_ratios).ci_high < REGRESSION


def short_of(log_ratios: Sequence[float], delta: float) -> int:
    """How many restarts gain no more than the noise floor."""
    return sum(ratio <= math.log1p(delta) for ratio in log_ratios)


def gains_in_total(log_ratios: Sequence[float], delta: float) -> bool:
    """Whether half of the restarts gain more than the noise floor in all their timed calls together.

    A check on a gain that the medians have shown: a median says nothing of the slower half, and a sum counts every
    disturbance, so that less can be asked of it.
    """
    return median(log_ratios) > math.log1p(delta)
