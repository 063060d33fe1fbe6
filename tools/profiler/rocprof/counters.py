"""Which hardware counters are read, in which passes, and what they mean: each figure with its formula, unit and source.

Does not give a figure whose counters are not all there, or one that no hardware could reach: then the formula does
not hold for that device, which is told. For RDNA no counters are known here.

Sources, all from memory, since none of them was at hand; nothing is checked on hardware:
    [M] ROCm documentation, "MI300 and MI200 series performance counters and metrics".
    [C] ROCm Compute Profiler documentation, "Performance model", and the formulas of its analysis configurations.
    [D] rocprofiler, `derived_counters.xml`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tools.hardware import Architecture, Device

# bytes of a line of the L2 [C]
_L2_LINE = {"gfx908": 64, "gfx90a": 128, "gfx942": 128, "gfx950": 128}
# counters that one pass holds, of each block of the hardware [C]
_PER_PASS = {"SQ": 8, "GRBM": 2, "TA": 2, "TCP": 4, "TCC": 4}
# what those that the tool derives take: (block, counters), at most [D]
_DERIVED = {"FETCH_SIZE": ("TCC", 3), "WRITE_SIZE": ("TCC", 2)}
_MFMA_BUSY = "SQ_VALU_MFMA_BUSY_CYCLES"
_ROOM = 1.02  # over what is possible, for counters that were read a little apart


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
    unit: str
    formula: str
    source: str
    counters: tuple[str, ...]
    compute: Callable[[Values, Hardware], float | None]
    most: Callable[[Hardware], float | None] = lambda hardware: 1.0


def _ratio(above: float, below: float | None) -> float | None:
    return above / below if below else None


def _lanes(hardware: Hardware) -> float:
    return float(hardware.architecture.wave_size)


METRICS: tuple[Metric, ...] = (
    Metric(
        "active_lanes",
        "lanes of a wave, of those instructions that vector units did",
        "SQ_THREAD_CYCLES_VALU / SQ_ACTIVE_INST_VALU",
        "[C] VALU active threads, [D] VALUUtilization",
        ("SQ_THREAD_CYCLES_VALU", "SQ_ACTIVE_INST_VALU"),
        lambda v, h: _ratio(v["SQ_THREAD_CYCLES_VALU"], v["SQ_ACTIVE_INST_VALU"]),
        _lanes,
    ),
    Metric(
        "lds_conflict_share",
        "share of the cycles in which the LDS worked",
        "SQ_LDS_BANK_CONFLICT / SQ_LDS_IDX_ACTIVE",
        "[C] LDS bank conflict rate",
        ("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"),
        lambda v, h: _ratio(v["SQ_LDS_BANK_CONFLICT"], v["SQ_LDS_IDX_ACTIVE"]),
    ),
    Metric(
        "lds_stall_share",
        "share of the kernel's cycles, of all compute units",
        "SQ_LDS_BANK_CONFLICT / (GRBM_GUI_ACTIVE / dies * compute units)",
        "[D] LDSBankConflict",
        ("SQ_LDS_BANK_CONFLICT", "GRBM_GUI_ACTIVE"),
        lambda v, h: _ratio(v["SQ_LDS_BANK_CONFLICT"], h.unit_cycles(v["GRBM_GUI_ACTIVE"])),
    ),
    Metric(
        "mfma_busy_share",
        "share of the kernel's cycles, of all SIMDs",
        f"{_MFMA_BUSY} / (GRBM_GUI_ACTIVE / dies * compute units * SIMDs)",
        "[C] MFMA utilization, [D] MfmaUtil",
        (_MFMA_BUSY, "GRBM_GUI_ACTIVE"),
        lambda v, h: _ratio(v[_MFMA_BUSY], (h.unit_cycles(v["GRBM_GUI_ACTIVE"]) or 0.0) * h.architecture.simds),
    ),
    Metric(
        "l2_hit_share",
        "share of the L2's requests",
        "TCC_HIT_sum / (TCC_HIT_sum + TCC_MISS_sum)",
        "[D] L2CacheHit",
        ("TCC_HIT_sum", "TCC_MISS_sum"),
        lambda v, h: _ratio(v["TCC_HIT_sum"], v["TCC_HIT_sum"] + v["TCC_MISS_sum"]),
    ),
    Metric(
        "l2_requests",
        "requests of one launch",
        "TCC_REQ_sum",
        "[M]",
        ("TCC_REQ_sum",),
        lambda v, h: v["TCC_REQ_sum"],
        lambda h: None,
    ),
    Metric(
        "coalescing",
        "share; 0.25 when each lane of a wave is served for itself",
        "64 * TA_TOTAL_WAVEFRONTS_sum / (4 * TCP_TOTAL_ACCESSES_sum)",
        "[C] vL1D coalescing",
        ("TA_TOTAL_WAVEFRONTS_sum", "TCP_TOTAL_ACCESSES_sum"),
        lambda v, h: _ratio(16 * v["TA_TOTAL_WAVEFRONTS_sum"], v["TCP_TOTAL_ACCESSES_sum"]),
    ),
    Metric(
        "fetched_bytes",
        "bytes from memory, of one launch",
        "1024 * FETCH_SIZE",
        "[M] FETCH_SIZE, in KiB",
        ("FETCH_SIZE",),
        lambda v, h: 1024 * v["FETCH_SIZE"],
        lambda h: None,
    ),
    Metric(
        "written_bytes",
        "bytes to memory, of one launch",
        "1024 * WRITE_SIZE",
        "[M] WRITE_SIZE, in KiB",
        ("WRITE_SIZE",),
        lambda v, h: 1024 * v["WRITE_SIZE"],
        lambda h: None,
    ),
)


def passes(architecture: str) -> list[tuple[str, ...]]:
    """What to read in each run of the program so that all of it fits together; nothing for an unknown architecture.

    A pass for the caches is apart from that for the compute units: what fails in one leaves the other.
    """
    name = architecture.partition(":")[0]
    if name not in _L2_LINE:
        return []
    wanted = dict.fromkeys(counter for metric in METRICS for counter in metric.counters)
    if name == "gfx908":  # [M] tells of it from MI200 on
        wanted.pop(_MFMA_BUSY)
    found: list[list[str]] = []
    for of_units in (True, False):
        here: list[list[str]] = []
        for counter in wanted:
            if (_block(counter)[0] in ("SQ", "GRBM")) != of_units:
                continue
            fits = next((one for one in here if _fit([*one, counter])), None)
            here.append([counter]) if fits is None else fits.append(counter)
        found += here
    return [tuple(one) for one in found]


def _block(counter: str) -> tuple[str, int]:
    return _DERIVED.get(counter, (counter.partition("_")[0], 1))


def _fit(counters: list[str]) -> bool:
    used: dict[str, int] = {}
    for block, taken in map(_block, counters):
        used[block] = used.get(block, 0) + taken
    return all(taken <= _PER_PASS[block] for block, taken in used.items())


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
