"""What was timed of one build beside another, and the ratios that come of it. Does not decide: `accept.py` does.

What staging and loading take longer than the incumbent's counts as part of the call, so that work moved there gains
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Literal

from pydantic import BaseModel, Field

from tools.judging import accept, long_use
from tools.judging.accept import SpeedupInterval
from tools.judging.device_state import DeviceState
from tools.judging.long_use import LongUse

INCUMBENT = "incumbent"  # the name of the side that the others are compared with
STAGING_SLACK = 1.03  # staging of the same code differs by up to 3 % between two workers (180 to 260 us, 2 cores)
LOADING_SLACK = 1.5  # loading 67 MB to a GPU (40 ms) by 12 %; where sides take turns, in other restarts, by 40 %

CaseNs = dict[int, list[int]]


@dataclass
class Side:
    """One worker's timings in one restart: nanoseconds by case."""

    call_ns: CaseNs = field(default_factory=dict)
    stage_ns: CaseNs = field(default_factory=dict)
    load_ns: CaseNs = field(default_factory=dict)
    """Of sealed inputs, before they are staged; others are loaded while they are staged."""
    long_use: LongUse | None = None
    calls: dict[int, int] = field(default_factory=dict)
    """In a row, before it is another's turn; else one."""

    def begin(self, case: int, calls: int) -> None:
        self.call_ns[case], self.stage_ns[case], self.load_ns[case] = [], [], []
        self.calls[case] = calls

    def rounds(self, case: int) -> list[float]:
        """What a call takes in each, nanoseconds."""
        timed, calls = self.call_ns[case], self.calls.get(case, 1)
        return [median(timed[at : at + calls]) for at in range(0, len(timed), calls)]


@dataclass
class Restart:
    """Workers started afresh and timed in turns."""

    sides: dict[str, Side]
    wall_s: float
    prepared_s: float = 0.0  # of it, until its workers were ready

    def log_ratios(self, side: str) -> list[float]:
        """log(incumbent / side) by case: above 0, the side is faster.

        The median of the rounds' own ratios, each of two medians: what loads the machine for some rounds slows both
        sides down in these alike.
        """
        found = []
        for case, moved in self._moved(side, median).items():
            rounds = zip(self.sides[INCUMBENT].rounds(case), self.sides[side].rounds(case), strict=True)
            found.append(median(math.log(theirs / (mine + moved)) for theirs, mine in rounds))
        return found

    def total_log_ratios(self, side: str) -> list[float]:
        """The same by the sums of all timed calls, stagings and loadings."""
        theirs, mine = self.sides[INCUMBENT].call_ns, self.sides[side].call_ns
        moved = self._moved(side, sum)
        return [math.log(sum(theirs[case]) / (sum(mine[case]) + longer)) for case, longer in moved.items()]

    def _moved(self, side: str, of: Callable[[list[int]], float]) -> dict[int, float]:
        """By case: how much longer than the incumbent's its staging and loading took."""
        theirs, mine = self.sides[INCUMBENT], self.sides[side]
        return {
            case: _longer(mine.stage_ns, theirs.stage_ns, case, STAGING_SLACK, of)
            + _longer(mine.load_ns, theirs.load_ns, case, LOADING_SLACK, of)
            for case in sorted(theirs.call_ns)
        }

    def in_long_use(self, side: str) -> tuple[int, float, int, dict[str, float]]:
        """(calls in a row, log ratio of them, bytes grown beyond the incumbent's, times as long by size)."""
        theirs, mine = self.sides[INCUMBENT].long_use, self.sides[side].long_use
        assert theirs is not None and mine is not None
        sizes = {name: ns / theirs.sizes_ns[name] for name, ns in mine.sizes_ns.items() if name in theirs.sizes_ns}
        if not mine.call_ns:
            return 0, 0.0, 0, sizes
        moved = max(0.0, sum(mine.stage_ns) - STAGING_SLACK * sum(theirs.stage_ns))
        ratio = math.log(sum(theirs.call_ns) / (sum(mine.call_ns) + moved))
        return len(mine.call_ns), ratio, mine.grown_bytes - theirs.grown_bytes, sizes

    def costs(self, side: str) -> dict[str, tuple[float, float]]:
        """By name of `long_use.COSTS`: the incumbent's and the side's."""
        theirs, mine = self.sides[INCUMBENT].long_use, self.sides[side].long_use
        assert theirs is not None and mine is not None
        return {name: (theirs.costs[name], mine.costs[name]) for name in mine.costs}


def _longer(mine: CaseNs, theirs: CaseNs, case: int, slack: float, of: Callable[[list[int]], float]) -> float:
    return max(0.0, of(mine.get(case) or [0]) - slack * of(theirs.get(case) or [0]))


class Comparison(BaseModel):
    """All restarts of one comparison. Rows are restarts, columns are cases; microseconds are medians of a restart."""

    purpose: str
    incumbent: str
    candidate: str
    incumbent_us: list[list[float]] = Field(default_factory=list)
    candidate_us: list[list[float]] = Field(default_factory=list)
    case_log_ratios: list[list[float]] = Field(default_factory=list)
    incumbent_stage_us: list[list[float]] = Field(default_factory=list)
    candidate_stage_us: list[list[float]] = Field(default_factory=list)
    incumbent_load_us: list[list[float]] = Field(default_factory=list)
    candidate_load_us: list[list[float]] = Field(default_factory=list)
    """Of large inputs, before they are staged; 0 for others."""
    case_total_log_ratios: list[list[float]] = Field(default_factory=list)
    """Of all timed calls together: a median says nothing of the slower half."""
    long_calls: int = 0
    """In a row: see `long_use.py`, for these as well."""
    long_log_ratios: list[float] = Field(default_factory=list)
    grown_bytes: list[int] = Field(default_factory=list)
    size_ratios: list[dict[str, float]] = Field(default_factory=list)
    costs: list[dict[str, tuple[float, float]]] = Field(default_factory=list)
    wall_s: float = 0.0
    prepared_s: float = 0.0
    """Of it, until the workers of each restart were ready."""
    devices_before: list[DeviceState] = Field(default_factory=list)
    """Clocks, power and temperature of the machine's GPUs, when a GPU was timed."""
    devices_after: list[DeviceState] = Field(default_factory=list)
    refused: str = ""
    """Why a tripwire fired; empty when none did."""
    broken: str = ""
    """What failed in the candidate while it was timed."""
    unsettled: str = ""
    """The machine changed its pace, or a guard fired on the incumbent, also when this was repeated: nothing can be
    decided, and no build is to blame.
    """
    repeated: list[str] = Field(default_factory=list)
    """Why it was measured again, each time."""
    pace_us: list[float] = Field(default_factory=list)
    """What the incumbent takes, by case, where nothing is timed beside it: of one that is unsettled by the pace, or
    whose ratios are those at this one.
    """

    @property
    def failed(self) -> str:
        """Why it counts for nothing; empty when it counts."""
        return self.refused or self.broken or self.unsettled

    @property
    def log_ratios(self) -> list[float]:
        """One number per restart: cases count by their geometric mean."""
        return [sum(row) / len(row) for row in self.case_log_ratios]

    @property
    def total_log_ratios(self) -> list[float]:
        return [sum(row) / len(row) for row in self.case_total_log_ratios]

    @property
    def staged_log_ratios(self) -> list[float]:
        """`log_ratios` if all that staging takes longer counts, without slack: some gain must be left even so."""
        rows = zip(
            self.case_log_ratios, self.incumbent_us, self.incumbent_stage_us, self.candidate_stage_us, strict=False
        )
        return [fmean(_staged(*case) for case in zip(*row, strict=True)) for row in rows if row[2]]

    def interval(self, delta: float = 0.0) -> SpeedupInterval:
        return accept.speedup_interval(self.log_ratios, delta)

    def cases(self, delta: float = 0.0) -> list[SpeedupInterval]:
        return [accept.speedup_interval(column, delta) for column in zip(*self.case_log_ratios, strict=True)]

    def median_us(self, side: str, of: Literal["", "stage_", "load_"] = "") -> list[float]:
        """By case: of a call of the "incumbent" or the "candidate", or of staging or loading an input for it."""
        return medians(getattr(self, f"{side}_{of}us"))

    def over(self, other: Comparison) -> Comparison:
        """This candidate over another timed beside the same incumbent, from the first restarts, which both were in."""
        both = min(len(self.case_log_ratios), len(other.case_log_ratios))
        return Comparison(
            purpose=f"{self.purpose}, over {other.purpose}",
            incumbent=other.candidate,
            candidate=self.candidate,
            incumbent_us=other.candidate_us[:both],
            candidate_us=self.candidate_us[:both],
            case_log_ratios=_over(self.case_log_ratios, other.case_log_ratios),
            incumbent_stage_us=other.candidate_stage_us[:both],
            candidate_stage_us=self.candidate_stage_us[:both],
            incumbent_load_us=other.candidate_load_us[:both],
            candidate_load_us=self.candidate_load_us[:both],
            case_total_log_ratios=_over(self.case_total_log_ratios, other.case_total_log_ratios),
            wall_s=min(self.wall_s, other.wall_s),
            prepared_s=min(self.prepared_s, other.prepared_s),
        )

    def summary(self, delta: float) -> dict[str, Any]:
        """As evidence: every restart's number, and the medians of both sides."""
        told: dict[str, Any] = {"measured_again": self.repeated} if self.repeated else {}
        told |= {"pace_us": self.pace_us} if self.pace_us else {}
        if not self.case_log_ratios:
            return {"purpose": self.purpose, "restarts": 0, **told}
        took = {f"{side}_{of}us": self.median_us(side, of) for of in _KINDS for side in ("incumbent", "candidate")}
        return {
            "purpose": self.purpose,
            **self.interval(delta).model_dump(),
            "log_ratios": [round(value, 6) for value in self.log_ratios],
            "total_log_ratios": [round(value, 6) for value in self.total_log_ratios],
            **{name: medians for name, medians in took.items() if "load" not in name or any(medians)},
            "cases": [interval.model_dump() for interval in self.cases(delta)],
            "wall_s": round(self.wall_s, 1),
            "prepared_s": round(self.prepared_s, 1),
            "devices": [state.model_dump() for state in self.devices_after],
            **({"long_use": seen} if (seen := long_use.told(self)) else {}),
            **told,
        }

    def at_pace(self) -> Comparison:
        """Of one that is unsettled: each restart in which the incumbent took longer than `pace_us` counts as if it had
        not. So what a machine that slowed down gave to the candidate is taken from it; the times stay as measured.
        """
        slower = [
            [max(0.0, math.log(us / pace)) for us, pace in zip(took, self.pace_us, strict=True)]
            for took in self.incumbent_us
        ]
        counted = {name: _over(getattr(self, name), slower) for name in ("case_log_ratios", "case_total_log_ratios")}
        return self.model_copy(update=counted)

    def followed_by(self, more: Comparison) -> Comparison:
        """This one with the restarts of a later one of the same builds."""
        rows = {name: [*value, *getattr(more, name)] for name, value in self if isinstance(value, list)}
        rows |= {"devices_before": self.devices_before, "devices_after": more.devices_after}
        took = {"wall_s": self.wall_s + more.wall_s, "prepared_s": self.prepared_s + more.prepared_s}
        return self.model_copy(update={**rows, **took})

    def add(self, restart: Restart, name: str) -> None:
        for side, timed in (("incumbent", restart.sides[INCUMBENT]), ("candidate", restart.sides[name])):
            for of, ns in zip(_KINDS, (timed.call_ns, timed.stage_ns, timed.load_ns), strict=True):
                getattr(self, f"{side}_{of}us").append(medians_us(ns))
        self.case_log_ratios.append(restart.log_ratios(name))
        self.case_total_log_ratios.append(restart.total_log_ratios(name))
        self.wall_s += restart.wall_s
        self.prepared_s += restart.prepared_s
        self.add_long_use(restart, name)

    def add_long_use(self, restart: Restart, name: str) -> None:
        """Where it was measured in this restart."""
        if restart.sides[name].long_use is None:
            return
        calls, ratio, grown, sizes = restart.in_long_use(name)
        self.size_ratios.append(sizes)
        self.costs.append(restart.costs(name))
        if calls:
            self.long_calls = calls
            self.long_log_ratios.append(ratio)
            self.grown_bytes.append(grown)


_KINDS: tuple[Literal["", "stage_", "load_"], ...] = ("", "stage_", "load_")


def medians_us(ns: Mapping[int, Sequence[int]]) -> list[float]:
    """By case."""
    return [median(ns[case] or [0]) / 1e3 for case in sorted(ns)]


def medians(rows: list[list[float]]) -> list[float]:
    """By case."""
    return [median(column) for column in zip(*rows, strict=True)]


def _staged(log_ratio: float, incumbent_us: float, incumbent_stage_us: float, candidate_stage_us: float) -> float:
    longer = max(0.0, candidate_stage_us - incumbent_stage_us)
    counted = max(0.0, candidate_stage_us - STAGING_SLACK * incumbent_stage_us)
    return -math.log(math.exp(-log_ratio) + (longer - counted) / incumbent_us)


def _over(mine: list[list[float]], theirs: list[list[float]]) -> list[list[float]]:
    return [[m - t for m, t in zip(*rows, strict=True)] for rows in zip(mine, theirs, strict=False)]
