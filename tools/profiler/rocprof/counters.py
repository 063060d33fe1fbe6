"""Which hardware counters are read, in which passes, and the figures they give: formula, unit and source of each.

A figure is left out when a counter is missing, or when it is above what the hardware can reach: then the formula does
not hold for that device, and the profile has a note. For RDNA no counters are known here.

Sources, all from memory; nothing is checked on hardware:
    [M] ROCm documentation, "MI300 and MI200 series performance counters and metrics".
    [C] ROCm Compute Profiler documentation, "Performance model", and the formulas of its analysis configurations.
    [D] rocprofiler, `derived_counters.xml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tools.hardware import Architecture, Device

# bytes of a line of the L2 [C]
_L2_LINE = {"gfx908": 64, "gfx90a": 128, "gfx942": 128, "gfx950": 128}
_MFMA_BUSY = "SQ_VALU_MFMA_BUSY_CYCLES"
# What is read in each run of the program: compute units, caches, memory. A pass holds 8 counters of SQ, 4 of TCC and
# TCP, 2 of GRBM and TA [C]; FETCH_SIZE takes 3 of TCC and WRITE_SIZE 2 [D].
_PASSES = (
    (
        "SQ_THREAD_CYCLES_VALU",
        "SQ_ACTIVE_INST_VALU",
        "SQ_LDS_BANK_CONFLICT",
        "SQ_LDS_IDX_ACTIVE",
        "GRBM_GUI_ACTIVE",
        _MFMA_BUSY,
    ),
    ("TCC_HIT_sum", "TCC_MISS_sum", "TCC_REQ_sum", "TA_TOTAL_WAVEFRONTS_sum", "TCP_TOTAL_ACCESSES_sum"),
    ("FETCH_SIZE",),
    ("WRITE_SIZE",),
)
_ROOM = 1.02  # over what is possible, for counters that were read a little apart


def passes(architecture: str) -> list[tuple[str, ...]]:
    """The counters of each run of the program; none for an unknown architecture."""
    name = architecture.partition(":")[0]
    if name not in _L2_LINE:
        return []
    # [M] has the counter of matrix units from MI200 on
    return [tuple(one for one in found if name != "gfx908" or one != _MFMA_BUSY) for found in _PASSES]


@dataclass(frozen=True)
class Hardware:
    """What formulas need of the device; None where it is not in the table."""

    architecture: Architecture
    device: Device | None = None
    units_told: int | None = None  # by the device itself

    @property
    def compute_units(self) -> int | None:
        return self.units_told or (None if self.device is None else self.device.compute_units)

    @property
    def line_bytes(self) -> int | None:
        return _L2_LINE.get(self.architecture.name)

    def unit_cycles(self, busy: float) -> float | None:
        """Cycles of all compute units, from those of the device, which count for each of its dies."""
        return None if self.device is None else busy / self.device.dies * self.device.compute_units


Values = Mapping[str, float]  # of one launch, on average


@dataclass(frozen=True)
class Metric:
    """One figure of a kernel, made of counters of one launch."""

    name: str  # in `Launch.counters`
    formula: str
    compute: Callable[[Values, Hardware], float | None]
    most: Callable[[Hardware], float | None] = lambda hardware: 1.0

    @property
    def counters(self) -> list[str]:
        return re.findall(r"[A-Z]{2,}_\w+", self.formula)


def _ratio(above: float, below: float | None) -> float | None:
    return above / below if below else None


def _unbounded(hardware: Hardware) -> None:
    return None


METRICS: tuple[Metric, ...] = (
    # lanes of a wave, of the instructions of vector units [C: VALU active threads] [D: VALUUtilization]
    Metric(
        "active_lanes",
        "SQ_THREAD_CYCLES_VALU / SQ_ACTIVE_INST_VALU",
        lambda v, h: _ratio(v["SQ_THREAD_CYCLES_VALU"], v["SQ_ACTIVE_INST_VALU"]),
        lambda h: float(h.architecture.wave_size),
    ),
    # share of the cycles in which the LDS worked [C: LDS bank conflict rate]
    Metric(
        "lds_conflict_share",
        "SQ_LDS_BANK_CONFLICT / SQ_LDS_IDX_ACTIVE",
        lambda v, h: _ratio(v["SQ_LDS_BANK_CONFLICT"], v["SQ_LDS_IDX_ACTIVE"]),
    ),
    # share of the kernel's cycles, of all compute units [D: LDSBankConflict]
    Metric(
        "lds_stall_share",
        "SQ_LDS_BANK_CONFLICT / (GRBM_GUI_ACTIVE / dies * compute units)",
        lambda v, h: _ratio(v["SQ_LDS_BANK_CONFLICT"], h.unit_cycles(v["GRBM_GUI_ACTIVE"])),
    ),
    # share of the kernel's cycles, of all SIMDs [C: MFMA utilization] [D: MfmaUtil]
    Metric(
        "mfma_busy_share",
        f"{_MFMA_BUSY} / (GRBM_GUI_ACTIVE / dies * compute units * SIMDs)",
        lambda v, h: _ratio(v[_MFMA_BUSY], (h.unit_cycles(v["GRBM_GUI_ACTIVE"]) or 0.0) * h.architecture.simds),
    ),
    # share of the L2's requests [D: L2CacheHit]
    Metric(
        "l2_hit_share",
        "TCC_HIT_sum / (TCC_HIT_sum + TCC_MISS_sum)",
        lambda v, h: _ratio(v["TCC_HIT_sum"], v["TCC_HIT_sum"] + v["TCC_MISS_sum"]),
    ),
    # of one launch [M]
    Metric("l2_requests", "TCC_REQ_sum", lambda v, h: v["TCC_REQ_sum"], _unbounded),
    # 0.25 when each lane of a wave is served by itself [C: vL1D coalescing]
    Metric(
        "coalescing",
        "64 * TA_TOTAL_WAVEFRONTS_sum / (4 * TCP_TOTAL_ACCESSES_sum)",
        lambda v, h: _ratio(16 * v["TA_TOTAL_WAVEFRONTS_sum"], v["TCP_TOTAL_ACCESSES_sum"]),
    ),
    # from and to memory, of one launch; the counters are in KiB [M]
    Metric("fetched_bytes", "1024 * FETCH_SIZE", lambda v, h: 1024 * v["FETCH_SIZE"], _unbounded),
    Metric("written_bytes", "1024 * WRITE_SIZE", lambda v, h: 1024 * v["WRITE_SIZE"], _unbounded),
)


def derive(values: Values, hardware: Hardware) -> tuple[dict[str, float], list[Metric]]:
    """The figures that these counters give, and those that they give an impossible value for."""
    found, impossible = dict[str, float](), list[Metric]()
    for metric in METRICS:
        if not all(counter in values for counter in metric.counters):
            continue
        value, most = metric.compute(values, hardware), metric.most(hardware)
        if value is None:
            continue
        if most is not None and value > most * _ROOM:
            impossible.append(metric)
            continue
        found[metric.name] = value if most is None else min(value, most)
    return found, impossible
