"""Read what AMD's profilers leave as CSV: the launches and counters of rocprofv3 and of rocprof-compute.

What a version does not write is None, and noted once for each file. Source of the columns: rocprofiler-sdk's "Using
rocprofv3" and ROCm Compute Profiler's `pmc_perf.csv`; read on recordings from MI100, MI200 and MI300 (the samples of
tests/tools/profiler/rocprof). Times are in ns. `Grid_Size` counts work-items: workgroups are grid over workgroup size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.profiler.rocprof.counters import METRICS
from tools.profiler.rocprof.table import Row, Spellings, Table, find

# each column by its spellings in lower case: rocprofiler-sdk from 1.1 on and rocpd, what came before, rocprof-compute
_NAME: Spellings = ("kernel_name", "kernelname", "name")
_START: Spellings = ("start_timestamp",)
_END: Spellings = ("end_timestamp",)
_LDS: Spellings = ("lds_block_size", "group_segment_size", "lds_per_workgroup")
_SCRATCH: Spellings = ("scratch_size", "private_segment_size", "scratch_per_workitem")
_REGISTERS: Spellings = ("vgpr_count", "arch_vgpr")
_ACCUMULATORS: Spellings = ("accum_vgpr_count", "accum_vgpr")
_LONGEST_LAUNCH_NS = 3_600_000_000_000  # an hour: beyond it a row is garbled
_COUNTER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}(\[\d{1,4}\])?")
_CHANNEL = re.compile(r"(\w{1,100})\[\d{1,4}\]")  # `TCC_HIT[3]`: of one channel of the L2
_PERF = re.compile(r"pmc_perf(_\d+)?\.csv")
_KNOWN = frozenset(counter for metric in METRICS for counter in metric.counters)


@dataclass(frozen=True)
class Shape:
    """How a kernel was launched and built, as far as the file tells."""

    workgroups: int | None = None
    workgroup_size: int | None = None
    registers: int | None = None  # architectural, of one lane
    accumulators: int | None = None
    lds_bytes: int | None = None  # of a workgroup, in whole blocks
    scratch_bytes: int | None = None  # of one work-item


@dataclass(frozen=True)
class Dispatch:
    """One launch."""

    kernel: str
    start_ns: int
    end_ns: int
    agent: str = ""  # its number
    shape: Shape = Shape()

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Reading:
    """One counter of one launch, over all its instances."""

    kernel: str
    counter: str
    value: float
    agent: str = ""
    shape: Shape = Shape()
    order: int = 0  # of its launch: its start where that is told, else its number


@dataclass
class Recorded:
    """What was found in one folder."""

    dispatches: list[Dispatch] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_rocprofv3(folder: Path) -> Recorded:
    """All `*kernel_trace.csv` and `*counter_collection.csv` below a folder, those of several processes together."""
    recorded = Recorded()
    for path in find(
        folder, lambda name: name.endswith(("kernel_trace.csv", "counter_collection.csv")), recorded.notes
    ):
        table = Table(path, recorded.notes)
        if path.name.endswith("kernel_trace.csv"):
            _launches(table, (_NAME, _START, _END), (_LDS, _SCRATCH, _REGISTERS, _ACCUMULATORS), recorded)
        else:
            _counters(table, recorded)
    return recorded


def read_rocprof_compute(folder: Path) -> Recorded:
    """All `pmc_perf.csv` below a folder: a row for each launch, with a column for each counter that is known here."""
    recorded = Recorded()
    wanted = (_START, _END, _REGISTERS, ("grid_size",), ("workgroup_size",))
    for path in find(folder, _PERF.fullmatch, recorded.notes):
        _launches(Table(path, recorded.notes), (_NAME,), wanted, recorded)
    return recorded


def _launches(table: Table, needed: Sequence[Spellings], wanted: Sequence[Spellings], into: Recorded) -> None:
    """A row for each launch. A file that need not have times has counters, also in rows without times."""
    wrong = 0
    columns: dict[str, list[str]] | None = {} if _START in needed else None
    for row in table.rows(needed, wanted):
        name, agent, shape, span = row.name(*_NAME), _agent(row), _shape(row), _span(row)
        if name is None or (span is None and _START in needed):
            wrong += 1
            continue
        if span is not None:
            into.dispatches.append(Dispatch(name, *span, agent, shape))
        columns = _columns(table.header) if columns is None else columns
        for counter, spelled in columns.items():
            values = [row.number(column) for column in spelled]
            if None not in values:  # empty where another pass read it
                value = sum(each or 0.0 for each in values)
                into.readings.append(Reading(name, counter, value, agent, shape, span[0] if span else 0))
    _tell(table, wrong)


def _counters(table: Table, into: Recorded) -> None:
    """A row for each counter and launch; two rows of one launch are instances, and added."""
    wrong = 0
    found: dict[tuple[str | int, ...], Reading] = {}
    for number, row in enumerate(table.rows((_NAME, ("counter_name",), ("counter_value",)))):
        name, counter, value = row.name(*_NAME), row.text("counter_name"), row.number("counter_value")
        if name is None or value is None or counter is None or not _COUNTER.fullmatch(counter):
            wrong += 1
            continue
        launch = row.text("dispatch_id", "correlation_id")
        key = (row.text("process_id") or "", launch or number, _agent(row), name, counter)
        before = found[key].value if key in found else 0.0
        order = row.whole(*_START, "dispatch_id", "correlation_id") or 0
        found[key] = Reading(name, counter, before + value, _agent(row), _shape(row), order)
    into.readings += found.values()
    _tell(table, wrong)


def _columns(header: tuple[str, ...]) -> dict[str, list[str]]:
    """The known counters of a file, each with its column, or with those of the channels that it is the sum of."""
    whole: dict[str, list[str]] = {}
    channels: dict[str, list[str]] = {}
    for name in map(str.strip, header):
        channel = _CHANNEL.fullmatch(name)
        if name in _KNOWN:
            whole[name] = [name.lower()]
        elif channel is not None and f"{channel[1]}_sum" in _KNOWN:
            channels.setdefault(f"{channel[1]}_sum", []).append(name.lower())
    return {**channels, **whole}


def _agent(row: Row) -> str:
    """The number of the device, written as "Agent 2" or as 2; empty where there is none."""
    found = re.fullmatch(r"(?:agent\s*)?(\d{1,9})", row.text("agent_id", "gpu_id") or "", re.IGNORECASE)
    return found[1] if found else ""


def _shape(row: Row) -> Shape:
    groups, items = _sides(row, "workgroup_size"), _sides(row, "grid_size")
    known = 0 not in groups and len(groups) == len(items)
    return Shape(
        workgroups=math.prod(-(-item // group) for item, group in zip(items, groups, strict=True)) if known else None,
        workgroup_size=math.prod(groups) or None,
        registers=row.whole(*_REGISTERS),
        accumulators=row.whole(*_ACCUMULATORS),
        lds_bytes=row.whole(*_LDS),
        scratch_bytes=row.whole(*_SCRATCH),
    )


def _sides(row: Row, name: str) -> tuple[int, ...]:
    """Work-items: all of them from one column, or those of three dimensions; 0 where they are not known."""
    parts = [row.whole(name)] if row.text(name) else [row.whole(f"{name}_{axis}") for axis in "xyz"]
    return tuple(part or 0 for part in parts)


def _span(row: Row) -> tuple[int, int] | None:
    start, end = row.whole(*_START), row.whole(*_END)
    if start is None or end is None or not 0 <= end - start <= _LONGEST_LAUNCH_NS:
        return None
    return start, end


def _tell(table: Table, wrong: int) -> None:
    if wrong:
        table.note(f"has {wrong} rows that make no sense, which were passed over")
