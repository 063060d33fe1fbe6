"""Merge what AMD's tools recorded into the kernels of a profile: how they were built and launched, and their counters.

Times and shares stay the profile's own, and a kernel that could be one of several gets nothing. A kernel that was
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
from tools.profiler.result import KernelRow, Profile
from tools.profiler.rocprof import names
from tools.profiler.rocprof.counters import Hardware, Metric, derive
from tools.profiler.rocprof.recorded import Dispatch, Reading, Recorded, Shape

MOST_KERNELS = 2000  # different names; a target may make up any number of them
_SHOWN = 3  # names in a note
_LONGEST_SHOWN = 80


@dataclass
class Seen:
    """One kernel as the tool names it, in the order in which it ran."""

    dispatches: list[Dispatch] = field(default_factory=list)
    readings: dict[str, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    """By counter."""

    @property
    def time_ns(self) -> int:
        return sum(each.duration_ns for each in self.dispatches)

    def last(self, count: int) -> Seen:
        return Seen(self.dispatches[-count:], {name: read[-count:] for name, read in self.readings.items()})

    def is_fewer_than(self, count: int) -> bool:
        return 0 < len(self.dispatches) < count or any(len(read) < count for read in self.readings.values())

    @property
    def shape(self) -> Shape:
        """A pass of counters runs kernels one by one, so that the launches of a trace count where there are any."""
        times: Counter[Shape] = Counter()
        for each in self.dispatches:
            times[each.shape] += each.duration_ns + 1
        found = times or Counter(reading.shape for read in self.readings.values() for reading in read)
        return found.most_common(1)[0][0] if found else Shape()

    @property
    def values(self) -> dict[str, float]:
        """Of each counter, of one launch on average."""
        return {name: sum(each.value for each in read) / len(read) for name, read in self.readings.items()}


def merge(profile: Profile, recorded: Recorded, tool: str = "rocprofv3") -> Profile:
    """The profile with what was found added, and notes on what was not."""
    architecture = find_architecture(profile.architecture)
    device = find_device(profile.device, profile.architecture, profile.compute_units)
    hardware = Hardware(architecture, device, profile.compute_units) if architecture else None
    kernels, notes = by_kernel(recorded), list(recorded.notes)
    matches = names.match([row.name for row in profile.kernels], kernels)
    fewer = list[str]()
    for row in profile.kernels:
        if (name := matches.found.get(row.name)) is not None:
            count = max(1, round(row.calls * max(profile.calls, 1)))
            fewer += [name] if kernels[name].is_fewer_than(count) else []
            kernels[name] = kernels[name].last(count)
    trusted = not _registers_doubtful(profile.architecture, kernels.values())
    impossible: Counter[Metric] = Counter()
    rows = [
        _merged(row, kernels[matches.found[row.name]], hardware, trusted, impossible)
        if row.name in matches.found
        else row
        for row in profile.kernels
    ]
    if fewer:
        notes.append(
            f"{len(fewer)} kernels were launched less often than in the profile, so that those of building the model "
            f"may be among them: {_named(fewer)}"
        )
    if not trusted:
        notes.append(
            "no kernel has accumulation registers; old versions do not know those of gfx950, so that neither registers "
            "nor occupancy are told"
        )
    if architecture is None and kernels:
        notes.append(
            f"{profile.architecture or 'this architecture'} is not in the table of devices; no occupancy and no "
            "meaning of counters are told"
        )
    notes += [
        f"{metric.name} is left out for {count} kernels: {metric.formula} gives more than there can be"
        for metric, count in impossible.items()
    ]
    notes += [*_on_names(matches, kernels, profile), *_on_records(recorded)]
    found = [*profile.notes, *(f"{tool}: {note}" for note in notes)]
    return profile.model_copy(update={"kernels": rows, "notes": found})


def by_kernel(recorded: Recorded) -> dict[str, Seen]:
    """By name; when there are too many, those with most launches."""
    often = Counter(each.kernel for each in recorded.dispatches)
    often.update({each.kernel: 0 for each in recorded.readings})
    kept = {name: Seen() for name, _ in often.most_common(MOST_KERNELS)}
    for launch in sorted(recorded.dispatches, key=lambda each: each.start_ns):
        if launch.kernel in kept:
            kept[launch.kernel].dispatches.append(launch)
    for reading in sorted(recorded.readings, key=lambda each: each.order):
        if reading.kernel in kept:
            kept[reading.kernel].readings[reading.counter].append(reading)
    return kept


def _merged(
    row: KernelRow, seen: Seen, hardware: Hardware | None, trusted: bool, impossible: Counter[Metric]
) -> KernelRow:
    shape, values = seen.shape, seen.values
    registers, accumulators = (shape.registers, shape.accumulators) if trusted else (None, None)
    derived, strange = derive(values, hardware) if hardware else ({}, [])
    impossible.update(strange)
    fits = _occupancy(shape, hardware) if hardware and trusted else None
    found: dict[str, object] = {
        "workgroups": shape.workgroups,
        "workgroup_size": shape.workgroup_size,
        "registers": None if registers is None else registers + (accumulators or 0),
        "accumulators": accumulators,
        "lds_bytes": shape.lds_bytes,
        "scratch_bytes": shape.scratch_bytes,
        "occupancy": None if fits is None else fits.share,
        "counters": {**row.launch.counters, **values, **derived},
    }
    known = {name: value for name, value in found.items() if value is not None}
    merged = row.model_copy(update={"launch": row.launch.model_copy(update=known)})
    seen_causes = causes.of_counters(merged, hardware, fits) if hardware else []
    if not seen_causes:
        return merged
    told = [why for _, why in seen_causes if why not in row.why]  # by the tool that was merged before
    cause = seen_causes[0][0] if row.cause == "unknown" else row.cause
    return merged.model_copy(update={"cause": cause, "why": "; ".join([row.why, *told] if row.why else told)})


def _occupancy(shape: Shape, hardware: Hardware) -> Occupancy | None:
    """None where it is not known, and for what does not fit, and so was not launched like this."""
    if not shape.workgroup_size or shape.registers is None or shape.lds_bytes is None:
        return None
    architecture, accumulators = hardware.architecture, shape.accumulators or 0
    apart = architecture.registers.accumulators_apart
    used = max(shape.registers, accumulators) if apart else shape.registers + accumulators
    waves = -(-shape.workgroup_size // architecture.wave_size)
    found = occupancy(architecture, Need(used, shape.lds_bytes, waves))
    return found if found.workgroups else None


def _registers_doubtful(architecture: str, kernels: Collection[Seen]) -> bool:
    """Old versions compute accumulation registers of gfx90a and gfx94x alone (ROCm's `rocprofiler` code)."""
    if not architecture.startswith("gfx950"):
        return False
    told = [shape for seen in kernels if (shape := seen.shape).registers is not None]
    return bool(told) and not any(shape.accumulators for shape in told)


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
    matched = set(matches.found.values())
    unused = [name for name in kernels if name not in matched]
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
