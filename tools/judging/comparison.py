"""What was measured of one build beside another: every restart, every case. Does not decide: `accept.py` does."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import Any

from pydantic import BaseModel, Field

from tools.judging import accept
from tools.judging.accept import SpeedupInterval
from tools.judging.device_state import DeviceState
from tools.judging.timings import INCUMBENT, Restart


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
    """Why nothing can be decided by it, and nobody is to blame: the machine changed its pace, the last time too."""
    pace_us: list[float] = Field(default_factory=list)
    """Of one that is unsettled: what the incumbent takes, by case, where nothing else is timed beside it."""

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
        """The same as `log_ratios` where all that staging takes longer counts, also what two workers of the same code
        may differ by: at least some gain must be left of one that is no work moved there.
        """
        rows = zip(self.incumbent_us, self.candidate_us, self.incumbent_stage_us, self.candidate_stage_us, strict=False)
        return [fmean(_staged(*case) for case in zip(*row, strict=True)) for row in rows if row[2]]

    def interval(self, delta: float = 0.0) -> SpeedupInterval:
        return accept.speedup_interval(self.log_ratios, delta)

    def cases(self, delta: float = 0.0) -> list[SpeedupInterval]:
        return [accept.speedup_interval(column, delta) for column in zip(*self.case_log_ratios, strict=True)]

    def median_us(self, side: str) -> list[float]:
        return medians(self.incumbent_us if side == "incumbent" else self.candidate_us)

    def median_stage_us(self, side: str) -> list[float]:
        """What it takes to stage an input, by case."""
        return medians(self.incumbent_stage_us if side == "incumbent" else self.candidate_stage_us)

    def median_load_us(self, side: str) -> list[float]:
        """What it takes to load an input before it is staged, by case; 0 where that is part of staging."""
        return medians(self.incumbent_load_us if side == "incumbent" else self.candidate_load_us)

    def over(self, other: Comparison) -> Comparison:
        """This candidate over another that was timed in the same restarts, beside the same incumbent."""
        return Comparison(
            purpose=f"{self.purpose}, over {other.purpose}",
            incumbent=other.candidate,
            candidate=self.candidate,
            incumbent_us=other.candidate_us,
            candidate_us=self.candidate_us,
            case_log_ratios=_over(self.case_log_ratios, other.case_log_ratios),
            incumbent_stage_us=other.candidate_stage_us,
            candidate_stage_us=self.candidate_stage_us,
            incumbent_load_us=other.candidate_load_us,
            candidate_load_us=self.candidate_load_us,
            case_total_log_ratios=_over(self.case_total_log_ratios, other.case_total_log_ratios),
            wall_s=self.wall_s,
            prepared_s=self.prepared_s,
        )

    def summary(self, delta: float) -> dict[str, Any]:
        """As evidence: every restart's number, and the medians of both sides."""
        if not self.case_log_ratios:
            return {"purpose": self.purpose, "restarts": 0}
        loads = {f"{side}_load_us": self.median_load_us(side) for side in ("incumbent", "candidate")}
        return {
            "purpose": self.purpose,
            **self.interval(delta).model_dump(),
            "log_ratios": [round(value, 6) for value in self.log_ratios],
            "total_log_ratios": [round(value, 6) for value in self.total_log_ratios],
            "incumbent_us": self.median_us("incumbent"),
            "candidate_us": self.median_us("candidate"),
            "incumbent_stage_us": self.median_stage_us("incumbent"),
            "candidate_stage_us": self.median_stage_us("candidate"),
            **{name: medians for name, medians in loads.items() if any(medians)},
            "cases": [interval.model_dump() for interval in self.cases(delta)],
            "wall_s": round(self.wall_s, 1),
            "prepared_s": round(self.prepared_s, 1),
            "devices": [state.model_dump() for state in self.devices_after],
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
        rows["devices_before"] = self.devices_before
        rows["devices_after"] = more.devices_after
        took = {"wall_s": self.wall_s + more.wall_s, "prepared_s": self.prepared_s + more.prepared_s}
        return self.model_copy(update={**rows, **took})

    def add(self, restart: Restart, side: str) -> None:
        for name, calls, stages, loads in (
            (INCUMBENT, self.incumbent_us, self.incumbent_stage_us, self.incumbent_load_us),
            (side, self.candidate_us, self.candidate_stage_us, self.candidate_load_us),
        ):
            timed = restart.sides[name]
            cases = sorted(timed.call_ns)
            calls.append([timed.median_us(case) for case in cases])
            stages.append([timed.median_stage_us(case) for case in cases])
            loads.append([timed.median_load_us(case) for case in cases])
        self.case_log_ratios.append(restart.log_ratios(side))
        self.case_total_log_ratios.append(restart.total_log_ratios(side))
        self.wall_s += restart.wall_s
        self.prepared_s += restart.prepared_s


def medians(rows: list[list[float]]) -> list[float]:
    """By case."""
    return [median(column) for column in zip(*rows, strict=True)]


def _staged(incumbent_us: float, candidate_us: float, incumbent_stage_us: float, candidate_stage_us: float) -> float:
    return math.log(incumbent_us / (candidate_us + max(0.0, candidate_stage_us - incumbent_stage_us)))


def _over(mine: list[list[float]], theirs: list[list[float]]) -> list[list[float]]:
    return [[m - t for m, t in zip(*rows, strict=True)] for rows in zip(mine, theirs, strict=True)]
