"""Make a profile of a trace: rows by kernel, module and category, what holds each back, what each step could gain.

Does not promise: a step's ceiling is what is left when everything that it works on takes no more time than memory and
arithmetic need. No change can gain more, most gain less.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TypeVar

from tools.profiler import causes, ceilings, timeline, work
from tools.profiler.categories import CATEGORIES, category_of
from tools.profiler.result import Bound, CaseRow, CategoryShare, Ceilings, KernelRow, Launch, ModuleRow, Profile, Span
from tools.profiler.trace import Launch as Launched
from tools.profiler.trace import Module, Trace

_T = TypeVar("_T")
MOST_SPANS = 20_000
_MOST = 0.8  # of a kernel's launches must tell what they do, for it to be held against what the device reaches
_PASSED = 1.1  # times a peak: more than two measurements of it differ
_RAISED = "products here are faster than what was measured as the peak of this machine: they are taken for the peak"
_SCALED = "the profiler slows this down: times are scaled to what a call takes without it"
_OTHER_PATH = (
    "what was traced takes far longer than a call without the profiler: under its hooks the code seems to take another "
    "path than the timed one, and then nothing here is of a timed call"
)
_SLOWED_CPU, _SLOWED_DEVICE = 4.0, 1.5  # times as long as a call: more than tracing alone makes of it


@dataclass(frozen=True)
class Subject:
    """What was profiled, on what."""

    entry: str
    device: str
    cases: Mapping[str, float]  # latency of a call in µs without the profiler, its median, in the order of the trace
    architecture: str = ""
    compute_units: int | None = None
    ceilings: Ceilings = field(default_factory=Ceilings)

    @property
    def call_us(self) -> float:
        return fmean(self.cases.values()) if self.cases else 0.0

    @property
    def on_device(self) -> bool:
        return self.device != "cpu"


def profile(trace: Trace, subject: Subject) -> Profile:
    """Nothing in the trace can make it fail."""
    whole = _of(trace, subject)
    if len(subject.cases) > 1:
        _tell_cases_apart(whole, trace, subject)
    if whole.other_path:
        whole.notes.append(_OTHER_PATH)
    return whole


def _tell_cases_apart(whole: Profile, trace: Trace, subject: Subject) -> None:
    parts = _by_case(trace, len(subject.cases))
    if not parts:
        whole.notes.append("the cases of the workload cannot be told apart in the trace: what is said is of all")
        return
    found = {
        name: _of(part, replace(subject, cases={name: call_us}))
        for (name, call_us), part in zip(subject.cases.items(), parts, strict=True)
    }
    whole.cases = [_case(name, each) for name, each in found.items()]
    whole.other_path = whole.other_path or any(each.other_path for each in found.values())
    whole.steps = ceilings.over_cases(list(found.values()))
    causes.recommend_for_cases(whole)


def _by_case(trace: Trace, count: int) -> list[Trace]:
    """The same number of calls of each, one case after the other; nothing where launches do not tell their call."""
    each, rest = divmod(trace.calls, count)
    if not each or rest or any(launch.call is None for launch in trace.launches):
        return []
    parts = [Trace(calls=each, on_device=trace.on_device) for _ in range(count)]
    for launch in trace.launches:
        index, call = divmod(launch.call or 0, each)
        if index >= count:
            return []
        parts[index].launches.append(replace(launch, call=call))
    return parts


def _case(name: str, found: Profile) -> CaseRow:
    return CaseRow(
        name=name,
        call_us=found.call_us,
        busy_us=found.busy_us,
        idle_share=found.idle_share,
        launches=found.launches,
        bottleneck=found.primary_bottleneck_type,
    )


def _of(trace: Trace, subject: Subject) -> Profile:
    calls = max(trace.calls, 1)
    if not trace.on_device:
        trace = replace(trace, launches=_steadied(trace.launches))
    times = timeline.of(trace.launches, calls)
    scale, notes, busy_us = 1.0, list(trace.notes), times.busy_us
    if not trace.on_device:
        # operations of a CPU do not overlap, though they seem to once each lasts as long as the median of its like
        busy_us = sum(launch.duration_us for launch in trace.launches) / calls
        if busy_us > subject.call_us > 0:
            scale = subject.call_us / busy_us
            notes.append(_SCALED)
    other_path = busy_us > (_SLOWED_DEVICE if trace.on_device else _SLOWED_CPU) * subject.call_us > 0
    rows, alike = _rows(trace.launches, calls, scale, subject)
    if not trace.on_device and (seen := _reached(rows, subject.ceilings)):
        peaks = {**subject.ceilings.peak_tflops, **seen}
        subject = replace(subject, ceilings=subject.ceilings.model_copy(update={"peak_tflops": peaks}))
        rows, alike = _rows(trace.launches, calls, scale, subject)
        notes.append(_RAISED)
    index = {row.name: number for number, row in enumerate(rows)}
    busy_us *= scale
    found = Profile(
        entry=subject.entry,
        device=subject.device,
        architecture=subject.architecture,
        compute_units=subject.compute_units,
        calls=trace.calls,
        call_us=subject.call_us,
        busy_us=busy_us,
        # on a CPU nobody can tell waiting from the profiler's own work between two operations
        span_us=max(times.span_us, busy_us) if trace.on_device else busy_us,
        idle_share=max(0.0, 1.0 - busy_us / subject.call_us) if subject.call_us > 0 else 0.0,
        gap_us=times.gap_us if trace.on_device else None,
        launches=times.launches,
        ceilings=subject.ceilings,
        categories=_categories(rows),
        kernels=rows,
        modules=_modules(trace.launches, calls, scale),
        timeline=list(_spans(trace.launches, index, scale)),
        other_path=other_path,
        notes=notes,
    )
    causes.judge(found, alike)
    found.steps = ceilings.of(found)
    return found


def _reached(rows: Iterable[KernelRow], reach: Ceilings) -> dict[str, float]:
    """Peaks that products of the target have passed, by data type: others were busy while they were measured."""
    found: dict[str, float] = {}
    for row in rows:
        if row.category == "gemm" and row.tflops and row.tflops > reach.peak_tflops.get(row.dtype, math.inf):
            found[row.dtype] = max(row.tflops, found.get(row.dtype, 0.0))
    return found


def _steadied(launches: Sequence[Launched]) -> list[Launched]:
    """On a CPU every launch as long as the median of its like: one that was interrupted would stand for all."""
    like: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for each in launches:
        like[each.name, each.op and each.op.shapes].append(each.duration_us)
    typical = {key: median(found) for key, found in like.items()}
    return [replace(each, duration_us=typical[each.name, each.op and each.op.shapes]) for each in launches]


def _rows(
    launches: Sequence[Launched], calls: int, scale: float, subject: Subject
) -> tuple[list[KernelRow], dict[str, list[KernelRow]]]:
    """By kernel, the largest first; and of each the parts that were launched alike, as rows of their own."""
    by_name: dict[str, list[Launched]] = defaultdict(list)
    for launch in launches:
        by_name[launch.name].append(launch)
    total_us = sum(launch.duration_us for launch in launches) or 1.0

    def row(name: str, found: Sequence[Launched]) -> KernelRow:
        return _row(name, found, calls, scale, total_us, subject)

    rows = sorted((row(name, found) for name, found in by_name.items()), key=lambda each: -each.time_us)
    return rows, {name: [row(name, part) for part in _alike(found)] for name, found in by_name.items()}


def _alike(launches: Sequence[Launched]) -> list[list[Launched]]:
    """Of one kernel: launches for the same shapes, in the same module. One that is large here may be tiny there."""
    parts: dict[tuple[object, ...], list[Launched]] = defaultdict(list)
    for each in launches:
        parts[each.op and (each.op.name, each.op.shapes), each.module and each.module.name].append(each)
    return list(parts.values())


def _row(
    name: str, launches: Sequence[Launched], calls: int, scale: float, total_us: float, subject: Subject
) -> KernelRow:
    time_us = sum(each.duration_us for each in launches)
    needs = [work.of(each.op).times(each.part) for each in launches]
    known = [each for each in needs if each.bytes is not None]
    row = KernelRow(
        name=name,
        category=category_of(name if launches[0].op is None else _best_name(name, launches[0].op.name)),
        calls=len(launches) / calls,
        time_us=scale * time_us / calls,
        share=time_us / total_us,
        mean_us=scale * time_us / len(launches),
        op=_most(each.op.name for each in launches if each.op) or "",
        launch=_launch(launches),
        dtype=_most(each.dtype for each in needs if each.dtype) or "",
    )
    module = _most(each.module for each in launches if each.module)
    if module is not None:
        row.module, row.where = module.name, module.where
    if len(known) > _MOST * len(launches):
        row.bytes = sum(each.bytes or 0.0 for each in known) / len(known)
        row.flops = sum(each.flops or 0.0 for each in known) / len(known)
        _against_ceilings(row, subject)
    return row


def _best_name(kernel: str, op: str) -> str:
    """A kernel's own name tells best; where it tells nothing, that of the operation that launched it."""
    return (
        op if category_of(kernel) in ("unclassified", "other Triton") and category_of(op) != "unclassified" else kernel
    )


def _against_ceilings(row: KernelRow, subject: Subject) -> None:
    if row.mean_us < 1e-3:  # finer than the profiler's clock
        return
    reach, shares = subject.ceilings, dict[Bound, float]()
    if row.bytes:
        row.gbps = row.bytes / row.mean_us / 1e3
        if reach.memory_gbps:
            shares["memory"] = row.gbps / reach.memory_gbps
    if row.flops:
        row.tflops = row.flops / row.mean_us / 1e6
        single = reach.peak_tflops.get("float32", math.inf)
        if subject.on_device and row.dtype == "float32" and row.tflops > _PASSED * single:
            row.dtype = "tf32"  # what else is so fast
        peak = reach.peak_tflops.get(row.dtype)
        if peak:
            shares["compute"] = row.tflops / peak
    if shares:
        row.bound, row.speed_of_light = max(shares.items(), key=lambda item: item[1])


def _launch(launches: Sequence[Launched]) -> Launch:
    def typical(values: Iterable[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return round(median(known)) if known else None

    return Launch(
        workgroups=typical(each.workgroups for each in launches),
        workgroup_size=typical(each.workgroup_size for each in launches),
        registers=typical(each.registers for each in launches),
        lds_bytes=typical(each.lds_bytes for each in launches),
    )


def _most(values: Iterable[_T]) -> _T | None:
    """What occurs most often; None when there is nothing."""
    counts: dict[_T, int] = defaultdict(int)
    for value in values:
        counts[value] += 1
    return max(counts, key=lambda value: counts[value]) if counts else None


def _categories(rows: Sequence[KernelRow]) -> list[CategoryShare]:
    """The largest first; the unclassified share always, also when it is none."""
    found = []
    for category in CATEGORIES:
        mine = [row for row in rows if row.category == category]
        if mine or category == "unclassified":
            found.append(
                CategoryShare(
                    category=category, time_us=sum(row.time_us for row in mine), share=sum(row.share for row in mine)
                )
            )
    return sorted(found, key=lambda each: -each.share)


def _modules(launches: Sequence[Launched], calls: int, scale: float) -> list[ModuleRow]:
    times: dict[tuple[str, str], float] = defaultdict(float)
    instances: dict[tuple[str, str], set[str]] = defaultdict(set)
    for launch in launches:
        module = launch.module or Module("", "", "")
        times[module.name, module.where] += launch.duration_us
        instances[module.name, module.where].add(module.instance)
    total_us = sum(times.values()) or 1.0
    rows = [
        ModuleRow(
            name=name or "(outside of any module)",
            where=where,
            instances=len(instances[name, where] - {""}),
            time_us=scale * time_us / calls,
            share=time_us / total_us,
        )
        for (name, where), time_us in times.items()
    ]
    return sorted(rows, key=lambda row: -row.time_us)


def _spans(launches: Sequence[Launched], index: dict[str, int], scale: float) -> Iterator[Span]:
    """Of the first call; of the first launches where no launch tells its call."""
    first = [each for each in launches if each.call == 0] or list(launches)
    begun = min((each.start_us for each in first), default=0.0)
    for each in first[:MOST_SPANS]:
        yield Span(
            start_us=scale * (each.start_us - begun),
            duration_us=scale * each.duration_us,
            kernel=index[each.name],
            stream=each.stream,
        )
