"""Read what `rocprof-compute profile` leaves as CSV: `pmc_perf.csv`, a row for each launch, a column for each counter.

Refuses the tables of `rocprof-compute analyze`, which are about all kernels together and named by version, and counters
that mean nothing to `counters.py`, of which there are hundreds. What is read merges like what rocprofv3 recorded.

Source of the columns: ROCm Compute Profiler, from memory; not checked on hardware. A counter of one channel of the L2
is spelled `TCC_HIT[3]`; channels are added up to `TCC_HIT_sum` where that is not there itself.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.profiler.rocprof.counters import METRICS
from tools.profiler.rocprof.csv_files import Dispatch, Reading, Recorded, agent_of, shape_of, span_of
from tools.profiler.rocprof.table import Row, Spellings, Table, find

_FILE = re.compile(r"pmc_perf(_\d+)?\.csv")
_NAME: Spellings = ("kernel_name", "kernelname", "name")
_START: Spellings = ("start_timestamp",)
_END: Spellings = ("end_timestamp",)
_KNOWN = frozenset(counter for metric in METRICS for counter in metric.counters)
_CHANNEL = re.compile(r"(\w{1,100})\[\d{1,4}\]")


def read_folder(folder: Path) -> Recorded:
    """All `pmc_perf.csv` below a folder; of one launch that several files tell of, each counter counts."""
    recorded = Recorded()
    for path in find(folder, _FILE.fullmatch, recorded.notes):
        recorded.add(read(path))
    return recorded


def read(path: Path) -> Recorded:
    recorded, wrong = Recorded(), 0
    table = Table(path, recorded.notes)
    columns: dict[str, list[str]] = {}
    for row in table.rows((_NAME,), (_START, _END, ("arch_vgpr", "vgpr_count"), ("grid_size",), ("workgroup_size",))):
        columns = columns or _counters(table)
        name = row.name(*_NAME)
        if name is None:
            wrong += 1
            continue
        agent, shape, span = agent_of(row), shape_of(row), span_of(row)
        if span is not None:
            recorded.dispatches.append(Dispatch(name, *span, agent, shape))
        for counter, spelled in columns.items():
            if (value := _sum(row, spelled)) is not None:
                recorded.readings.append(Reading(name, counter, value, agent, shape, span[0] if span else 0))
    if wrong:
        table.note(f"has {wrong} rows without a kernel, which were passed over")
    return recorded


def _counters(table: Table) -> dict[str, list[str]]:
    """The counters of a file, and the columns whose sum each is."""
    whole: dict[str, list[str]] = {}
    channels: dict[str, list[str]] = {}
    for name in map(str.strip, table.header):
        channel = _CHANNEL.fullmatch(name)
        if name in _KNOWN:
            whole[name] = [name.lower()]
        elif channel is not None and f"{channel[1]}_sum" in _KNOWN:
            channels.setdefault(f"{channel[1]}_sum", []).append(name.lower())
    return {**channels, **whole}


def _sum(row: Row, columns: list[str]) -> float | None:
    """None where one of them is empty, as where another pass read it."""
    values = [row.number(column) for column in columns]
    return None if any(value is None for value in values) else sum(value or 0.0 for value in values)
