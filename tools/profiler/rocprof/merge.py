"""Merge what AMD's tools recorded into the kernels of a profile: how they were built and launched, and their counters.

Does not change times and shares, which are the profile's own, or guess which kernel is meant. A kernel that was
launched in several shapes is described by the one that took most of its time. The tools also see how the model is
built: of each kernel the last launches count, as many as the profile has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tools.hardware import find_architecture, find_device
from tools.occupancy import Need, Occupancy, occupancy
from tools.profiler import causes
from tools.profiler.result import KernelRow, Launch, Profile
from tools.profiler.rocprof import names
from tools.profiler.rocprof.counters import Hardware, Metric, derive
from tools.profiler.rocprof.recorded import Dispatch, Reading, Recorded, Shape

MOST_KERNELS = 2000  # different names; a target may make up any number of them
_SHOWN = 3  # names in a note
_LONGEST_SHOWN = 80


@dataclass
class Seen:
    """One kernel as the tool names it."""

    launches: int = 0
    time_ns: int = 0
    shape: Shape = field(default_factory=Shape)
    values: dict[str, float] = field(default_factory=dict)
    """Of each counter, of one launch on average."""


def merge(profile: Profile, recorded: Recorded, tool: str = "rocprofv3") -> Profile:
    """The profile with what was found added, and notes on what was not."""
    architecture = find_architecture(profile.architecture)
    device = find_device(profile.device, profile.architecture, profile.compute_units)
    hardware = Hardware(architecture, device, profile.compute_units) if architecture else None
    kernels, notes = summarise(recorded), [f"{tool}: {note}" for note in recorded.notes]
    matches = names.match([row.name for row in profile.kernels], kernels)
    launches = {
        matches.found[row.name]: max(1, round(row.calls * max(profile.calls, 1)))
        for row in profile.kernels
        if row.name in matches.found
    }
    in_calls, fewer = _in_calls(recorded, launches)
    kernels |= summarise(in_calls)
    if fewer:
        notes.append(
            f"{tool}: {len(fewer)} kernels were launched less often than in the profile, so that those of "
            f"building the model may be among them: {_named(fewer)}"
        )
    trusted = not _registers_doubtful(profile.architecture, kernels)
    if not trusted:
        notes.append(
            f"{tool}: no kernel has accumulation registers; old versions do not know those of gfx950, so "
            "that neither registers nor occupancy are told"
        )
    if architecture is None and kernels:
        notes.append(
            f"{tool}: {profile.architecture or 'this architecture'} is not in the table of devices; no "
            "occupancy and no meaning of counters are told"
        )
    impossible: Counter[Metric] = Counter()
    rows = [
        _merged(row, kernels[matches.found[row.name]], hardware, trusted, impossible)
        if row.name in matches.found
        else row
        for row in profile.kernels
    ]
    notes += [
        f"{tool}: {metric.name} is left out for {count} kernels: {metric.formula} gives more than there can be"
        for metric, count in impossible.items()
    ]
    notes += [f"{tool}: {note}" for note in (*_on_names(matches, kernels, profile), *_on_records(recorded))]
    return profile.model_copy(update={"kernels": rows, "notes": [*profile.notes, *notes]})


def _in_calls(recorded: Recorded, launches: Mapping[str, int]) -> tuple[Recorded, list[str]]:
    """The last so many launches of these kernels, or all where there are fewer; and of which there are fewer."""
    dispatches: dict[str, list[Dispatch]] = defaultdict(list)
    for launch in sorted(recorded.dispatches, key=lambda each: each.start_ns):
        dispatches[launch.kernel].append(launch)
    readings: dict[tuple[str, str], list[Reading]] = defaultdict(list)
    for reading in sorted(recorded.readings, key=lambda each: each.order):
        readings[reading.kernel, reading.counter].append(reading)
    kept, fewer = Recorded(), dict[str, None]()
    for kernel, count in launches.items():
        found = dispatches.get(kernel, [])
        kept.dispatches += found[-count:]
        if 0 < len(found) < count:
            fewer[kernel] = None
    for (kernel, _), read in readings.items():
        count = launches.get(kernel, 0)
        kept.readings += read[-count:] if count else []
        if len(read) < count:
            fewer[kernel] = None
    return kept, list(fewer)


def summarise(recorded: Recorded) -> dict[str, Seen]:
    """By name; when there are too many, those with most launches."""
    often = Counter(each.kernel for each in recorded.dispatches)
    often.update({each.kernel: 0 for each in recorded.readings})
    kept = {name: Seen() for name, _ in often.most_common(MOST_KERNELS)}
    times: dict[str, Counter[Shape]] = defaultdict(Counter)
    for each in recorded.dispatches:
        if each.kernel in kept:
            kept[each.kernel].launches += 1
            kept[each.kernel].time_ns += each.duration_ns
            times[each.kernel][each.shape] += each.duration_ns + 1
    sums: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    shapes: dict[str, Counter[Shape]] = defaultdict(Counter)
    for reading in recorded.readings:
        if reading.kernel in kept:
            sums[reading.kernel][reading.counter].append(reading.value)
            shapes[reading.kernel][reading.shape] += 1
    for name, seen in kept.items():
        # a pass of counters runs kernels one by one, so that the launches of a trace count where there are any
        found = times.get(name) or shapes.get(name)
        seen.shape = found.most_common(1)[0][0] if found else Shape()
        seen.values = {counter: sum(values) / len(values) for counter, values in sums[name].items()}
    return kept


def _merged(
    row: KernelRow, seen: Seen, hardware: Hardware | None, trusted: bool, impossible: Counter[Metric]
) -> KernelRow:
    shape, before = seen.shape, row.launch
    registers = shape.registers if trusted else None
    accumulators = shape.accumulators if trusted else None
    derived, strange = derive(seen.values, hardware) if hardware else ({}, [])
    impossible.update(strange)
    fits = _occupancy(shape, hardware) if hardware and trusted else None
    launch = Launch(
        workgroups=_either(shape.workgroups, before.workgroups),
        workgroup_size=_either(shape.workgroup_size, before.workgroup_size),
        registers=before.registers if registers is None else registers + (accumulators or 0),
        accumulators=_either(accumulators, before.accumulators),
        lds_bytes=_either(shape.lds_bytes, before.lds_bytes),
        scratch_bytes=_either(shape.scratch_bytes, before.scratch_bytes),
        occupancy=before.occupancy if fits is None else fits.share,
        counters={**before.counters, **seen.values, **derived},
    )
    merged = row.model_copy(update={"launch": launch})
    found = causes.of_counters(merged, hardware, fits) if hardware else []
    if not found:
        return merged
    told = [why for _, why in found if why not in row.why]  # by the tool that was merged before
    cause = found[0][0] if row.cause == "unknown" else row.cause
    return merged.model_copy(update={"cause": cause, "why": "; ".join([row.why, *told] if row.why else told)})


def _occupancy(shape: Shape, hardware: Hardware) -> Occupancy | None:
    """None where it is not known, and for what does not fit, and so was not launched like this."""
    if shape.workgroup_size is None or shape.registers is None or shape.lds_bytes is None:
        return None
    if shape.workgroup_size <= 0:
        return None
    architecture, accumulators = hardware.architecture, shape.accumulators or 0
    apart = architecture.registers.accumulators_apart
    used = max(shape.registers, accumulators) if apart else shape.registers + accumulators
    waves = -(-shape.workgroup_size // architecture.wave_size)
    found = occupancy(architecture, Need(used, shape.lds_bytes, waves))
    return found if found.workgroups else None


def _either(found: int | None, before: int | None) -> int | None:
    return before if found is None else found


def _registers_doubtful(architecture: str, kernels: Mapping[str, Seen]) -> bool:
    """Old versions compute accumulation registers of gfx90a and gfx94x alone (ROCm's `rocprofiler` code)."""
    told = [seen.shape for seen in kernels.values() if seen.shape.registers is not None]
    return architecture.startswith("gfx950") and bool(told) and not any(shape.accumulators for shape in told)


def _on_names(matches: names.Matches, kernels: Mapping[str, Seen], profile: Profile) -> list[str]:
    notes = []
    if matches.ambiguous:
        notes.append(
            f"{len(matches.ambiguous)} kernels could be one of several and got nothing: {_named(matches.ambiguous)}"
        )
    missing = [row for row in profile.kernels if row.name in set(matches.missing)]
    if missing and kernels:
        share = sum(row.share for row in missing)
        notes.append(
            f"{len(missing)} kernels ({share:.1%} of the time) were not seen: {_named([row.name for row in missing])}"
        )
    unused = kernels.keys() - set(matches.found.values())
    total = sum(seen.time_ns for seen in kernels.values())
    if unused and total and not matches.ambiguous:
        share = sum(kernels[name].time_ns for name in unused) / total
        notes.append(
            f"{len(unused)} kernels ({share:.1%} of its time) are not in the profile: "
            f"{_named(sorted(unused, key=lambda name: -kernels[name].time_ns))}"
        )
    return notes


def _on_records(recorded: Recorded) -> list[str]:
    notes = []
    ran: list[Dispatch | Reading] = [*recorded.dispatches, *recorded.readings]
    if (count := len({each.kernel for each in ran})) > MOST_KERNELS:
        notes.append(f"there are {count} kernels, of which {MOST_KERNELS} were looked at")
    agents = sorted({each.agent for each in ran if each.agent}, key=int)
    if len(agents) > 1:
        notes.append(f"kernels ran on agents {', '.join(agents[:8])}; all of them are taken together")
    return notes


def _named(found: Collection[str]) -> str:
    shown = [name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…" for name in list(found)[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(found) > _SHOWN else "")
