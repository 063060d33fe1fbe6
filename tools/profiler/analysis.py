"""Make a profile of a trace: rows by kernel, module and category, what holds each back, what each step could gain."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import TypeVar

from tools.profiler import causes, ceilings, work
from tools.profiler.categories import CATEGORIES, Category, category_of
from tools.profiler.result import Bound, CaseRow, CategoryShare, Ceilings, KernelRow, Launch, ModuleRow, Profile, Span
from tools.profiler.trace import Launch as Launched
from tools.profiler.trace import Module, Op, Trace

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
    found = [
        _of(part, replace(subject, cases={name: call_us}))
        for (name, call_us), part in zip(subject.cases.items(), parts, strict=True)
    ]
    whole.cases = [
        CaseRow(
            name=name,
            call_us=each.call_us,
            busy_us=each.busy_us,
            idle_share=each.idle_share,
            launches=each.launches,
            bottleneck=each.primary_bottleneck_type,
        )
        for name, each in zip(subject.cases, found, strict=True)
    ]
    whole.other_path = whole.other_path or any(each.other_path for each in found)
    whole.steps = ceilings.over_cases(found)
    causes.recommend_for_cases(whole)


def _by_case(trace: Trace, count: int) -> list[Trace]:
    """The same number of calls of each, one case after the other; nothing where launches do not tell their call."""
    each, rest = divmod(trace.calls, count)
    calls = [launch.call for launch in trace.launches]
    if not each or rest or any(call is None or not 0 <= call < trace.calls for call in calls):
        return []
    parts = [Trace(calls=each, on_device=trace.on_device) for _ in range(count)]
    for launch in trace.launches:
        index, call = divmod(launch.call or 0, each)
        parts[index].launches.append(replace(launch, call=call))
    return parts


def _of(trace: Trace, subject: Subject) -> Profile:
    calls, launches = max(trace.calls, 1), trace.launches
    scale, notes = 1.0, list(trace.notes)
    if trace.on_device:
        busy_us = sum(end - start for start, end in _worked(launches)) / calls
    else:
        # operations of a CPU do not overlap, though they seem to once each lasts as long as the median of its like
        launches = _steadied(launches)
        busy_us = sum(launch.duration_us for launch in launches) / calls
        if busy_us > subject.call_us > 0:
            scale = subject.call_us / busy_us
            notes.append(_SCALED)
    span_us, gap_us = _span_and_gap(launches, calls)
    other_path = busy_us > (_SLOWED_DEVICE if trace.on_device else _SLOWED_CPU) * subject.call_us > 0
    rows, alike = _rows(launches, calls, scale, subject)
    if not trace.on_device and (seen := _reached(rows, subject.ceilings)):
        peaks = {**subject.ceilings.peak_tflops, **seen}
        subject = replace(subject, ceilings=subject.ceilings.model_copy(update={"peak_tflops": peaks}))
        rows, alike = _rows(launches, calls, scale, subject)
        notes.append(_RAISED)
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
        span_us=max(span_us, busy_us) if trace.on_device else busy_us,
        idle_share=max(0.0, 1.0 - busy_us / subject.call_us) if subject.call_us > 0 else 0.0,
        gap_us=gap_us if trace.on_device else None,
        launches=len(launches) / calls,
        ceilings=subject.ceilings,
        categories=_categories(rows),
        kernels=rows,
        modules=_modules(launches, calls, scale),
        timeline=_spans(launches, [row.name for row in rows], scale),
        other_path=other_path,
        notes=notes,
    )
    causes.judge(found, alike)
    found.steps = ceilings.of(found)
    return found


def _worked(launches: Iterable[Launched]) -> list[tuple[float, float]]:
    """From when to when something ran: launches that overlap, on whatever streams, are one."""
    found: list[tuple[float, float]] = []
    for each in sorted(launches, key=lambda each: each.start_us):
        start, end = each.start_us, each.start_us + each.duration_us
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _span_and_gap(launches: Sequence[Launched], calls: int) -> tuple[float, float | None]:
    """The mean time from a call's first start to its last end, and the median gap between launches in µs.

    Where no launch tells its call, all are taken for one series of `calls`.
    """
    by_call: dict[int | None, list[Launched]] = defaultdict(list)
    for launch in launches:
        by_call[launch.call].append(launch)
    told = [found for call, found in by_call.items() if call is not None]
    worked = [_worked(found) for found in told or by_call.values()]
    if not worked:
        return 0.0, None
    gaps = [after[0] - before[1] for found in worked for before, after in pairwise(found)]
    single = len(worked) == 1 and len(by_call) == 1
    span_us = sum(found[-1][1] - found[0][0] for found in worked) / (calls if single else len(worked))
    return span_us, median(gaps) if gaps else None


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
    """By kernel, the largest first; and of each kernel rows for launches of the same shapes in the same module."""
    by_name: dict[str, list[Launched]] = defaultdict(list)
    alike: dict[str, dict[object, list[Launched]]] = defaultdict(lambda: defaultdict(list))
    for each in launches:
        by_name[each.name].append(each)
        key = each.op and (each.op.name, each.op.shapes), each.module and each.module.name
        alike[each.name][key].append(each)
    total_us = sum(launch.duration_us for launch in launches) or 1.0

    def row(name: str, found: Sequence[Launched]) -> KernelRow:
        return _row(name, found, calls, scale, total_us, subject)

    rows = sorted((row(name, found) for name, found in by_name.items()), key=lambda each: -each.time_us)
    return rows, {name: [row(name, part) for part in parts.values()] for name, parts in alike.items()}


def _row(
    name: str, launches: Sequence[Launched], calls: int, scale: float, total_us: float, subject: Subject
) -> KernelRow:
    time_us = sum(each.duration_us for each in launches)
    needs = [work.of(each.op).times(each.part) for each in launches]
    known = [each for each in needs if each.bytes is not None]
    row = KernelRow(
        name=name,
        category=_category(name, launches[0].op),
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


def _category(kernel: str, op: Op | None) -> Category:
    """By the kernel's own name; where that says nothing, by the operation that launched it."""
    found = category_of(kernel)
    if found not in ("unclassified", "other Triton") or op is None or category_of(op.name) == "unclassified":
        return found
    return category_of(op.name)


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
    """The median of what is known."""
    names = ("workgroups", "workgroup_size", "registers", "lds_bytes")
    known = {name: [value for each in launches if (value := getattr(each, name)) is not None] for name in names}
    return Launch(**{name: round(median(values)) for name, values in known.items() if values})


def _most(values: Iterable[_T]) -> _T | None:
    """What occurs most often; None when there is nothing."""
    found = Counter(values).most_common(1)
    return found[0][0] if found else None


def _categories(rows: Sequence[KernelRow]) -> list[CategoryShare]:
    """The largest first; the unclassified share always, also when it is none."""
    found = {name: CategoryShare(category=name, time_us=0.0, share=0.0) for name in CATEGORIES}
    for row in rows:
        found[row.category].time_us += row.time_us
        found[row.category].share += row.share
    seen = {"unclassified", *(row.category for row in rows)}
    return sorted((each for each in found.values() if each.category in seen), key=lambda each: -each.share)


def _modules(launches: Sequence[Launched], calls: int, scale: float) -> list[ModuleRow]:
    found: dict[tuple[str, str], ModuleRow] = {}
    instances: dict[tuple[str, str], set[str]] = defaultdict(set)
    total_us = sum(launch.duration_us for launch in launches) or 1.0
    for launch in launches:
        module = launch.module or Module("", "", "")
        key = module.name, module.where
        row = found.setdefault(key, ModuleRow(name=module.name or "(outside of any module)", where=module.where))
        row.time_us += scale * launch.duration_us / calls
        row.share += launch.duration_us / total_us
        instances[key].add(module.instance)
    for key, row in found.items():
        row.instances = len(instances[key] - {""})
    return sorted(found.values(), key=lambda row: -row.time_us)


def _spans(launches: Sequence[Launched], names: list[str], scale: float) -> list[Span]:
    """Of the first call; of the first launches where no launch tells its call."""
    index = {name: number for number, name in enumerate(names)}
    first = [each for each in launches if each.call == 0] or launches
    begun = min((each.start_us for each in first), default=0.0)
    return [
        Span(
            start_us=scale * (each.start_us - begun),
            duration_us=scale * each.duration_us,
            kernel=index[each.name],
            stream=each.stream,
        )
        for each in first[:MOST_SPANS]
    ]
