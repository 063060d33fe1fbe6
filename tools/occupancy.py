"""How many waves of a kernel fit on a SIMD at once, what limits them, and what would have to fall for more.

More waves are not always better: a matrix kernel is often fastest with one or two. The grid is not considered. Formula:
AMD, "MI300X workload optimization" (ROCm documentation, "Compute the occupancy of a kernel").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tools.hardware import Architecture


@dataclass(frozen=True)
class Need:
    """What one workgroup takes. `vgprs` are of one lane: arch and accumulators together, where they share a file, else
    the larger of both.
    """

    vgprs: int
    lds_bytes: int
    waves: int  # of a workgroup: `num_warps`
    both_units: bool = False  # it may spread over the two compute units of a work-group processor


@dataclass(frozen=True)
class Step:
    """One change that would let more waves in; where several things limit, all of their steps are needed."""

    what: str  # "registers" or "LDS bytes"
    now: int
    needed: int


@dataclass(frozen=True)
class Occupancy:
    waves: float  # of a SIMD
    most: int  # that the hardware holds
    workgroups: int  # of a compute unit, or of a work-group processor
    by_registers: int  # workgroups that each would allow by itself
    by_lds: int | None
    limits: tuple[str, ...]  # "registers", "LDS", "rounding to whole workgroups", "hardware"
    steps: tuple[Step, ...] = ()
    next_waves: float = 0  # with the steps taken

    @property
    def percent(self) -> float:
        return 100 * self.share

    @property
    def share(self) -> float:
        return self.waves / self.most

    def limit(self) -> str:
        return " and ".join(self.limits)

    def next_step(self) -> str:
        """`128 registers instead of 136: 4 waves instead of 3`; empty at the hardware's most."""
        if not self.steps:
            return ""
        asked = " and ".join(f"{step.needed} {step.what} instead of {step.now}" for step in self.steps)
        word = "wave" if self.next_waves == 1 else "waves"
        return f"{asked}: {self.next_waves:g} {word} instead of {self.waves:g}"


def occupancy(architecture: Architecture, need: Need) -> Occupancy:
    """A kernel that does not fit at all has 0 waves; `steps` then say what would make it fit."""
    units = 2 if need.both_units else 1
    simds = architecture.simds * units
    registers = architecture.registers
    per_simd = registers.waves(need.vgprs)
    by_registers = per_simd * simds // need.waves
    by_hardware = registers.most_waves * simds // need.waves
    by_lds = _by_lds(architecture, need, units)
    workgroups = by_registers if by_lds is None else min(by_registers, by_lds)
    waves = workgroups * need.waves / simds
    limits: list[str] = []
    steps: list[Step] = []
    if workgroups == by_registers and workgroups < by_hardware:
        rounded = waves < per_simd
        limits.append("registers and rounding to whole workgroups" if rounded else "registers")
        wanted = math.ceil((workgroups + 1) * need.waves / simds)
        steps.append(Step("registers", need.vgprs, registers.total // wanted // registers.granule * registers.granule))
    if by_lds is not None and workgroups == by_lds and workgroups < by_hardware:
        limits.append("LDS")
        granule = architecture.lds_granule
        fits = architecture.lds_bytes * units // (workgroups + 1) // granule * granule
        steps.append(Step("LDS bytes", need.lds_bytes, min(fits, architecture.lds_bytes)))
    if not limits:
        limits.append("hardware")
    return Occupancy(
        waves=waves,
        most=registers.most_waves,
        workgroups=workgroups,
        by_registers=by_registers,
        by_lds=by_lds,
        limits=tuple(limits),
        steps=tuple(steps),
        next_waves=(workgroups + 1) * need.waves / simds if steps else waves,
    )


def _by_lds(architecture: Architecture, need: Need, units: int) -> int | None:
    """Workgroups that share the LDS; None when they need none. One alone never has more than one unit's."""
    if need.lds_bytes <= 0:
        return None
    if need.lds_bytes > architecture.lds_bytes:
        return 0
    granule = architecture.lds_granule
    return architecture.lds_bytes * units // (-(-need.lds_bytes // granule) * granule)
