"""What holds each kernel back, and the whole: one cause each, with its number; without a number it is unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tools.occupancy import Occupancy
from tools.profiler.categories import PRODUCTS, Category
from tools.profiler.result import Cause, KernelRow, Profile
from tools.profiler.rocprof.counters import Hardware

BOUND = 0.6  # of what the device can reach: it is bound by that
CACHED = 1.1  # of the memory's bandwidth: more than the memory gives
FAR = 0.1  # below it, neither memory nor arithmetic is the reason
SHORT_US = 10.0  # a kernel that does little in this time has hardly begun when it is over
LITTLE_BYTES = 1 << 20
LITTLE_WORK = LITTLE_BYTES // 16  # threads, of which each moves at most 16 bytes at a time; where bytes are not known
IDLE = 0.4  # of the time: launching decides, and not the device
LOW_OCCUPANCY = 0.25  # from two waves of eight on, latency is hidden by instructions of the same wave at best
MANY_REGISTERS = 256  # of one lane: one or two waves on a SIMD
# of hardware counters; set by reasoning, checked on recordings of a copy kernel alone
LDS_CONFLICTS = 0.20  # of the LDS's working cycles; a conflict of two in every other access gives a third
LDS_STALLS = 0.05  # of the kernel's cycles besides: where the LDS is used little, its conflicts cost little
ACTIVE_LANES = 0.50  # of a wave; half of them idle is what one branch that splits a wave costs
REQUEST_USED = 0.25  # of a line of the L2: requests of half a line are usual, of 32 bytes in 128 a waste
# each byte is read or written once, so that bytes over requests tell how full a request is
_STREAMS: frozenset[Category] = frozenset(
    {"norm", "copy and fill", "activation and elementwise", "quantization", "cache", "softmax and reduction"}
)
_SHOWN_SHARE = 0.05  # of a kernel that a recommendation speaks of


def judge(profile: Profile, alike: Mapping[str, Sequence[KernelRow]]) -> None:
    """Fills in the causes, the primary bottleneck and the recommendations.

    `alike`: by the kernel's name, rows of launches for the same shapes in the same module. Each has its own cause, and
    the cause with most of the time is the kernel's.
    """
    on_device, units = profile.device != "cpu", profile.compute_units
    by_component: dict[str, dict[Cause, float]] = defaultdict(lambda: defaultdict(float))
    for row in profile.kernels:
        times: dict[Cause, float] = defaultdict(float)
        why: dict[Cause, str] = {}
        for part in sorted(alike[row.name], key=lambda each: -each.time_us):
            cause, reason = of_kernel(part, profile.ceilings.launch_us, units) if on_device else _on_cpu(part)
            times[cause] += part.time_us
            by_component[part.module or part.op or part.name][cause] += part.time_us
            why.setdefault(cause, reason)
        row.cause = _largest(times)
        row.why = why[row.cause]
    if by_component:
        component, found = max(by_component.items(), key=lambda item: sum(item[1].values()))
        profile.primary_bottleneck_component = component
        profile.primary_bottleneck_type = "launch-bound" if launching_decides(profile) else _largest(found)
    profile.recommendations = list(dict.fromkeys(_recommendations(profile)))


def recommend_for_cases(profile: Profile) -> None:
    """Says which cases are bound by launches where the workload as a whole is not."""
    if profile.primary_bottleneck_type == "launch-bound":
        return
    waiting = [case for case in profile.cases if case.bottleneck == "launch-bound"]
    profile.recommendations[:0] = [
        f"In case {case.name} the device waits for {case.idle_share:.0%} of a call with {case.launches:.0f} launches: "
        "remove or merge kernels, then compile, then capture a graph."
        for case in waiting
    ]


def _largest(times: Mapping[Cause, float]) -> Cause:
    return max(times, key=lambda cause: times[cause])


def launching_decides(profile: Profile) -> bool:
    """Whether the device waits for the next launch more than it works, or runs little but tiny kernels."""
    tiny = sum(row.share for row in profile.kernels if row.cause == "launch-bound") > 0.5
    return profile.device != "cpu" and (profile.idle_share > IDLE or tiny)


def of_kernel(row: KernelRow, launch_us: float | None, compute_units: int | None) -> tuple[Cause, str]:
    """The cause and why, from its roofline, its launch and its machine code."""
    light, launch = row.speed_of_light, row.launch
    if launch.scratch_bytes:
        return "register pressure", f"it spills {launch.scratch_bytes} bytes of every lane to memory"
    if light is not None and light >= BOUND:
        return _bound(row, light, f"the peak of {row.dtype}", "the memory's bandwidth")
    if row.mean_us < max(SHORT_US, 2 * (launch_us or 0.0)) and (moved := _little(row)):
        return "launch-bound", f"{moved} in {row.mean_us:.1f} us: the launch is what is paid for"
    if launch.workgroups is not None and compute_units and launch.workgroups < compute_units:
        return "under-filled grid", f"{launch.workgroups} workgroups for {compute_units} compute units"
    if launch.registers is not None and launch.registers >= MANY_REGISTERS:
        return "register pressure", f"{launch.registers} registers a lane"
    if launch.occupancy is not None and launch.occupancy < LOW_OCCUPANCY:
        return "low occupancy", f"{launch.occupancy:.0%} of the waves that a SIMD holds"
    return "unknown", "" if light is None else f"{light:.0%} of what the device can reach"


def of_counters(row: KernelRow, hardware: Hardware, occupancy: Occupancy | None) -> list[tuple[Cause, str]]:
    """All causes that AMD's tools give, each with why: what counters saw first. `row.launch` holds what was merged."""
    found: list[tuple[Cause, str]] = []
    launch, counted = row.launch, row.launch.counters
    conflicts, stalls = counted.get("lds_conflict_share", 0.0), counted.get("lds_stall_share", 0.0)
    if conflicts >= LDS_CONFLICTS and stalls >= LDS_STALLS:
        why = f"{conflicts:.0%} of the LDS's cycles went to bank conflicts, {stalls:.0%} of the kernel's"
        found.append(("bank conflicts", why))
    requests, line = counted.get("l2_requests"), hardware.line_bytes
    used = row.bytes / requests if requests and row.bytes is not None and row.category in _STREAMS else None
    if used is not None and line and used < REQUEST_USED * line:
        why = f"a request to the L2 brought {used:.0f} bytes of use, of a line of {line}"
        why += f"; {counted['coalescing']:.0%} coalesced" if "coalescing" in counted else ""
        found.append(("uncoalesced access", why))
    size = hardware.architecture.wave_size
    if (lanes := counted.get("active_lanes", size)) < ACTIVE_LANES * size:
        short = launch.workgroup_size is not None and launch.workgroup_size < size
        why = f", and a workgroup has only {launch.workgroup_size} work-items" if short else ""
        found.append(("divergence", f"{lanes:.0f} of {size} lanes were active{why}"))
    if launch.scratch_bytes:
        why = f"{launch.scratch_bytes} bytes of scratch for each work-item: registers spilled, or an array is indexed"
        found.append(("register pressure", why))
    units, workgroups = hardware.compute_units, launch.workgroups
    if units is not None and workgroups is not None and workgroups < units:
        found.append(("under-filled grid", f"{workgroups} workgroups for {units} compute units"))
    if occupancy and occupancy.share < LOW_OCCUPANCY and row.category not in PRODUCTS:  # which run fast with few waves
        by_lds = "LDS" in occupancy.limits
        why = f"{occupancy.waves:g} waves fit on a SIMD, by {occupancy.limit()}"
        found.append(("low occupancy" if by_lds else "register pressure", why))
    return found


def _little(row: KernelRow) -> str:
    """What a kernel does, in a few words, where that is little; else nothing."""
    if row.bytes is not None:
        far = row.speed_of_light is not None and row.speed_of_light < FAR
        return f"{row.bytes:.0f} bytes" if row.bytes < LITTLE_BYTES or far else ""
    workgroups, size = row.launch.workgroups, row.launch.workgroup_size
    if workgroups is None or size is None or workgroups * size >= LITTLE_WORK:
        return ""
    return f"{workgroups} workgroups of {size} threads"


def _on_cpu(row: KernelRow) -> tuple[Cause, str]:
    light = row.speed_of_light
    if light is not None and light >= BOUND:
        return _bound(row, light, "what the library's large products reach here", "what copying reaches here")
    if row.mean_us < SHORT_US and row.bytes is not None and row.bytes < LITTLE_BYTES:
        return "launch-bound", f"{row.bytes:.0f} bytes in {row.mean_us:.1f} us: calling it is what is paid for"
    return "unknown", "" if light is None else f"{light:.0%} of what was measured as the peak here"


def _bound(row: KernelRow, light: float, peak: str, bandwidth: str) -> tuple[Cause, str]:
    if row.bound == "compute":
        return "compute-bound", f"{light:.0%} of {peak}"
    return "memory-bound", f"{light:.0%} of {bandwidth}{': its data comes out of the cache' if light > CACHED else ''}"


def _recommendations(profile: Profile) -> Iterator[str]:
    if not profile.kernels:
        return
    if launching_decides(profile):
        waits = profile.idle_share
        seen = f"The device waits for {waits:.0%} of a call" if waits > IDLE else "Tiny kernels are most of a call"
        yield (
            f"{seen} with {profile.launches:.0f} launches: remove or merge kernels, then compile, then capture a graph."
        )
    for row in profile.kernels:
        if row.share < _SHOWN_SHARE:
            continue
        name = row.name if len(row.name) <= 60 else row.name[:57] + "..."
        if row.cause == "launch-bound":
            yield f"{name} is launch overhead ({row.why}): merge it, replace it or move it to initialisation."
        elif row.cause == "memory-bound":
            yield f"{name} is at {row.why}: only moving fewer bytes (fusing, a smaller type) makes it faster."
        elif row.cause == "compute-bound":
            better = ", or a better kernel than the library's," if profile.device == "cpu" else ""
            yield f"{name} is at {row.why}: only doing less arithmetic, or a smaller type{better} makes it faster."
        elif row.cause != "unknown":
            yield f"{name}: {row.cause} ({row.why})."
    if profile.unclassified > 0.05:
        yield f"{profile.unclassified:.0%} of the time is in kernels of no known kind: look at them by name."
