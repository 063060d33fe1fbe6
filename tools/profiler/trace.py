"""Read a trace of torch.profiler: what ran on the device, when, for which operation, and in which module.

The file is untrusted: everything in it is bounded, garbled events are counted and skipped, and a file that is cut off
is read as far as it goes. The form is Chrome's trace events as Kineto writes them (`kernel`, `gpu_memcpy`,
`gpu_memset`, `cpu_op`, `user_annotation`; on ROCm under the same names).
"""

from __future__ import annotations

import gzip
import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.plain_text import plain

MARK = "ratchet|"  # begins the name of our own annotations: ratchet|call|3, ratchet|module|Attention|model.py:12|4
MOST_BYTES = 1 << 30
MOST_EVENTS = 2_000_000
_LONGEST_NAME = 2000
_BETWEEN = tuple(" \t\r\n,")
_DEEPEST = 200  # modules in one another
_LAUNCHING = ("_runtime", "_driver")  # the host's calls that launch: of a replayed graph, one for all its kernels
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True)
class Module:
    """A module whose `forward` is running."""

    name: str
    where: str
    instance: str


@dataclass(frozen=True)
class Op:
    """An operation, as it was called."""

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # of what is no tensor, as text; each in its place among all arguments


@dataclass(frozen=True)
class Launch:
    """One thing that the device did; on a CPU one operation, without those that it called."""

    name: str
    start_us: float
    duration_us: float
    stream: int = 0
    op: Op | None = None
    module: Module | None = None
    call: int | None = None  # of the entry, from 0
    workgroups: int | None = None
    workgroup_size: int | None = None
    registers: int | None = None
    lds_bytes: int | None = None
    part: float = 1.0  # of what its operation does, where several launches did it: by their time


@dataclass
class Trace:
    launches: list[Launch] = field(default_factory=list)
    calls: int = 0
    on_device: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Event:
    kind: str
    name: str
    start: float
    duration: float
    thread: tuple[Any, Any]
    args: dict[str, Any]

    @property
    def end(self) -> float:
        return self.start + self.duration


def read(path: Path) -> Trace:
    """Raises: OSError when there is no such file."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        return Trace(notes=[f"the trace is larger than {MOST_BYTES >> 20} MiB and was not read"])
    notes: list[str] = []
    return _assemble(list(_events(found.decode(errors="replace"), notes)), notes)


def _events(text: str, notes: list[str]) -> Iterator[_Event]:
    """Event by event, so that what comes before a cut is of use."""
    start = text.find("[", max(text.find('"traceEvents"'), 0))
    at = start + 1 or -1
    decoder, garbled, count = json.JSONDecoder(), 0, 0
    while at >= 0:
        while text[at : at + 1] in _BETWEEN:
            at += 1
        if text.startswith("]", at):
            break
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            notes.append("the trace is cut off")
            break
        count += 1
        if count > MOST_EVENTS:
            notes.append(f"only the first {MOST_EVENTS} events of the trace were read")
            break
        if isinstance(found, dict) and found.get("ph") == "X":
            event = _event(found)
            garbled += event is None
            if event is not None:
                yield event
    if garbled:
        notes.append(f"{garbled} events of the trace make no sense and were passed over")


def _event(found: dict[str, Any]) -> _Event | None:
    start, duration = _number(found.get("ts")), _number(found.get("dur", 0))
    kind, name, args = found.get("cat"), found.get("name"), found.get("args", {})
    if start is None or duration is None or duration < 0 or not isinstance(kind, str) or not isinstance(name, str):
        return None
    thread = (str(found.get("pid")), str(found.get("tid")))
    return _Event(kind, plain(name[:_LONGEST_NAME]), start, duration, thread, args if isinstance(args, dict) else {})


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _assemble(events: list[_Event], notes: list[str]) -> Trace:
    ops = [event for event in events if event.kind == "cpu_op"]
    marks = [event for event in events if event.kind == "user_annotation" and event.name.startswith(MARK)]
    calls = _Nesting([event for event in marks if event.name.startswith(f"{MARK}call|")])
    modules = _Nesting([event for event in marks if event.name.startswith(f"{MARK}module|")])
    device = [event for event in events if event.kind in _ON_DEVICE]
    on_device = bool(device)
    if on_device:
        causes = _led_back(device, ops, "External id")
        launched = _led_back(device, [each for each in events if each.kind.endswith(_LAUNCHING)], "correlation")
        anchors = [cause or launch for cause, launch in zip(causes, launched, strict=True)]
        durations = [event.duration for event in device]
    else:
        device, own = ops, _Nesting(ops).own_times()
        causes = anchors = list[_Event | None](ops)
        durations = [max(0.0, own[id(event)]) for event in ops]
    of_each: dict[int, float] = defaultdict(float)
    for cause, duration in zip(causes, durations, strict=True):
        of_each[id(cause)] += duration
    launches = []
    for event, cause, anchor, duration in zip(device, causes, anchors, durations, strict=True):
        # autograd and others work for a call on threads of their own
        call = None if anchor is None else calls.around(anchor) or calls.at(anchor.start)
        if call is None and anchor is not None and calls.count:
            continue  # between calls: inputs are put into place
        launches.append(
            Launch(
                name=event.name,
                start_us=event.start,
                duration_us=duration,
                stream=int(_number(event.args.get("stream")) or 0),
                op=None if cause is None else _op(cause, passes_on=not on_device and duration < cause.duration / 2),
                module=None if anchor is None else _module(modules.around(anchor)),
                call=None if call is None else int(_number(call.name.rpartition("|")[2]) or 0),
                workgroups=_product(event.args.get("grid")),
                workgroup_size=_product(event.args.get("block")),
                registers=_whole(event.args.get("registers per thread")),
                lds_bytes=_whole(event.args.get("shared memory")),
                part=1.0 if cause is None or of_each[id(cause)] <= 0 else duration / of_each[id(cause)],
            )
        )
    if missing := sum(launch.op is None for launch in launches):
        notes.append(
            f"{missing} of {len(launches)} launches belong to no operation (a graph that is replayed has none)"
        )
    if not launches:
        notes.append("the trace holds nothing that ran")
    launches.sort(key=lambda launch: launch.start_us)
    return Trace(launches, calls.count, on_device, notes)


def _led_back(device: Sequence[_Event], to: Sequence[_Event], name: str) -> list[_Event | None]:
    """For each event of the device the one that has the same number of this name."""
    by_number = {number: event for event in to if (number := _whole(event.args.get(name)))}
    return [by_number.get(_whole(event.args.get(name)) or 0) for event in device]


def _op(event: _Event, *, passes_on: bool) -> Op:
    """An operation; without operands where those that it called did its work, so that no work counts twice."""
    if passes_on:
        return Op(event.name)
    shapes, dtypes, values = (event.args.get(name) for name in ("Input Dims", "Input type", "Concrete Inputs"))
    return Op(
        event.name,
        tuple(_shape(each) for each in shapes) if isinstance(shapes, list) else (),
        tuple(str(each)[:40] for each in dtypes) if isinstance(dtypes, list) else (),
        tuple(str(each)[:40] for each in values) if isinstance(values, list) else (),
    )


def _shape(value: object) -> tuple[int, ...]:
    """Of one operand; of a list of tensors, and of no tensor, nothing."""
    whole = [_whole(each) for each in value] if isinstance(value, list) else []
    return tuple(each for each in whole if each is not None) if None not in whole else ()


def _module(event: _Event | None) -> Module | None:
    parts = [] if event is None else event.name.split("|")
    return Module(*parts[2:5]) if len(parts) == 5 else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**53 and number == int(number) else None


def _product(value: object) -> int | None:
    parts = _shape(value)
    return math.prod(parts) if parts else None


class _Nesting:
    """Finds the innermost of some spans that another lies in, on the same thread."""

    def __init__(self, spans: Sequence[_Event]) -> None:
        self.count = len(spans)
        self._spans = sorted(spans, key=lambda each: (each.start, -each.duration))
        self._by_thread: dict[tuple[Any, Any], list[_Event]] = defaultdict(list)
        for span in self._spans:
            self._by_thread[span.thread].append(span)
        self._starts = {thread: [span.start for span in found] for thread, found in self._by_thread.items()}
        self._outer = {thread: _outer(found) for thread, found in self._by_thread.items()}

    def around(self, event: _Event) -> _Event | None:
        spans = self._by_thread.get(event.thread, [])
        index = bisect_right(self._starts.get(event.thread, []), event.start) - 1
        for _ in range(_DEEPEST):
            if index < 0:
                break
            if spans[index].end >= event.end:
                return spans[index]
            index = self._outer[event.thread][index]
        return None

    def at(self, moment: float) -> _Event | None:
        """The span that holds it, on whatever thread; for spans that do not overlap."""
        index = bisect_right(self._spans, moment, key=lambda each: each.start) - 1
        return self._spans[index] if index >= 0 and self._spans[index].end >= moment else None

    def own_times(self) -> dict[int, float]:
        """By the `id` of each span: what it took without those directly inside it."""
        own = {id(span): span.duration for span in self._spans}
        for thread, spans in self._by_thread.items():
            for span, outer in zip(spans, self._outer[thread], strict=True):
                if outer >= 0:
                    own[id(spans[outer])] -= span.duration
        return own


def _outer(spans: Sequence[_Event]) -> list[int]:
    """For each span the index of the one around it, -1 for none."""
    found, open_ones = [], list[int]()
    for index, span in enumerate(spans):
        while open_ones and spans[open_ones[-1]].end < span.end:
            open_ones.pop()
        found.append(open_ones[-1] if open_ones else -1)
        open_ones.append(index)
    return found
