"""Read what rocprofv3 writes as CSV: launches, counters, statistics and copies.

Refuses to trust the files (see `table.py`) and to fill gaps: what a version does not write is None, and told once for
each file. Both generations of columns and the spelling of a rocpd database that was converted are read alike.

Source of the columns: documentation of ROCm's rocprofiler-sdk ("Using rocprofv3"), samples; not checked on hardware.
Times are in ns. `Grid_Size` counts work-items, so that workgroups are grid over workgroup size.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.profiler.rocprof.table import Row, Spellings, Table, find

# each column by its spellings in lower case: rocprofiler-sdk from 1.1 on and rocpd, then what came before
_NAME: Spellings = ("kernel_name",)
_START: Spellings = ("start_timestamp",)
_END: Spellings = ("end_timestamp",)
_LDS: Spellings = ("lds_block_size", "group_segment_size")
_SCRATCH: Spellings = ("scratch_size", "private_segment_size")
_REGISTERS: Spellings = ("vgpr_count",)
_ACCUMULATORS: Spellings = ("accum_vgpr_count",)
_LONGEST_LAUNCH_NS = 3_600_000_000_000  # an hour: beyond it a row is garbled
_COUNTER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}(\[\d{1,4}\])?")


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


@dataclass(frozen=True)
class Statistic:
    """The tool's own sum over all launches of a kernel."""

    kernel: str
    calls: int
    total_ns: float


@dataclass(frozen=True)
class Copy:
    """One copy between memories, of a size that is not told."""

    direction: str
    start_ns: int
    end_ns: int


@dataclass
class Recorded:
    """What was found in one folder."""

    dispatches: list[Dispatch] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    statistics: list[Statistic] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, other: Recorded) -> None:
        self.dispatches += other.dispatches
        self.readings += other.readings
        self.statistics += other.statistics
        self.copies += other.copies
        self.notes += other.notes


def read_folder(folder: Path) -> Recorded:
    """All files below a folder, those of several processes together, by the ends of their names."""
    recorded = Recorded()
    for path in find(folder, lambda name: name.endswith(tuple(_READERS)), recorded.notes):
        for ending, read in _READERS.items():
            if path.name.endswith(ending):
                recorded.add(read(path))
    return recorded


def read_kernel_trace(path: Path) -> Recorded:
    """`*kernel_trace.csv`."""
    recorded, wrong = Recorded(), 0
    table = Table(path, recorded.notes)
    for row in table.rows((_NAME, _START, _END), (_LDS, _SCRATCH, _REGISTERS, _ACCUMULATORS)):
        name, span = row.name(*_NAME), span_of(row)
        if name is None or span is None:
            wrong += 1
            continue
        recorded.dispatches.append(Dispatch(name, *span, agent_of(row), shape_of(row)))
    _tell(table, wrong)
    return recorded


def read_counter_collection(path: Path) -> Recorded:
    """`*counter_collection.csv`: a row for each counter and launch; two rows of one launch are instances, and added."""
    recorded, wrong = Recorded(), 0
    table = Table(path, recorded.notes)
    found: dict[tuple[str | int, ...], Reading] = {}
    needed: tuple[Spellings, ...] = (_NAME, ("counter_name",), ("counter_value",))
    for number, row in enumerate(table.rows(needed)):
        name, counter, value = row.name(*_NAME), row.text("counter_name"), row.number("counter_value")
        if name is None or value is None or counter is None or not _COUNTER.fullmatch(counter):
            wrong += 1
            continue
        launch = row.text("dispatch_id", "correlation_id")
        key = (row.text("process_id") or "", launch or number, agent_of(row), name, counter)
        before = found[key].value if key in found else 0.0
        order = row.whole(*_START, "dispatch_id", "correlation_id") or 0
        found[key] = Reading(name, counter, before + value, agent_of(row), shape_of(row), order)
    recorded.readings += found.values()
    _tell(table, wrong)
    return recorded


def read_kernel_stats(path: Path) -> Recorded:
    """`*kernel_stats.csv`."""
    recorded, wrong = Recorded(), 0
    table = Table(path, recorded.notes)
    needed: tuple[Spellings, ...] = (("name", "kernel_name"), ("calls",), ("totaldurationns", "total_duration_ns"))
    for row in table.rows(needed):
        name, calls, total = row.name(*needed[0]), row.whole(*needed[1]), row.number(*needed[2])
        if name is None or calls is None or total is None:
            wrong += 1
            continue
        recorded.statistics.append(Statistic(name, calls, total))
    _tell(table, wrong)
    return recorded


def read_memory_copies(path: Path) -> Recorded:
    """`*memory_copy_trace.csv`."""
    recorded, wrong = Recorded(), 0
    table = Table(path, recorded.notes)
    for row in table.rows((("direction", "name"), _START, _END)):
        direction, span = row.name("direction", "name"), span_of(row)
        if direction is None or span is None:
            wrong += 1
            continue
        recorded.copies.append(Copy(direction, *span))
    _tell(table, wrong)
    return recorded


_READERS = {
    "kernel_trace.csv": read_kernel_trace,
    "counter_collection.csv": read_counter_collection,
    "kernel_stats.csv": read_kernel_stats,
    "memory_copy_trace.csv": read_memory_copies,
}


def agent_of(row: Row) -> str:
    """The number of the device, written as "Agent 2" or as 2; empty where there is none."""
    found = re.fullmatch(r"(?:agent\s*)?(\d{1,9})", row.text("agent_id", "gpu_id") or "", re.IGNORECASE)
    return found[1] if found else ""


def shape_of(row: Row) -> Shape:
    groups, items = _sides(row, "workgroup_size"), _sides(row, "grid_size")
    known = 0 not in groups and len(groups) == len(items)
    return Shape(
        workgroups=math.prod(-(-item // group) for item, group in zip(items, groups, strict=True)) if known else None,
        workgroup_size=math.prod(groups) or None,
        registers=row.whole(*_REGISTERS, "arch_vgpr"),
        accumulators=row.whole(*_ACCUMULATORS, "accum_vgpr"),
        lds_bytes=row.whole(*_LDS, "lds_per_workgroup"),
        scratch_bytes=row.whole(*_SCRATCH, "scratch_per_workitem"),
    )


def _sides(row: Row, name: str) -> tuple[int, ...]:
    """Work-items: all of them from one column, or those of three dimensions; 0 where they are not known."""
    parts = [row.whole(name)] if row.text(name) else [row.whole(f"{name}_{axis}") for axis in "xyz"]
    return tuple(part or 0 for part in parts)


def span_of(row: Row) -> tuple[int, int] | None:
    start, end = row.whole(*_START), row.whole(*_END)
    if start is None or end is None or not 0 <= end - start <= _LONGEST_LAUNCH_NS:
        return None
    return start, end


def _tell(table: Table, wrong: int) -> None:
    if wrong:
        table.note(f"has {wrong} rows that make no sense, which were passed over")
