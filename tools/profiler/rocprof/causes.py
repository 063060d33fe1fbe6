"""What keeps a kernel back, from how it was launched and what its counters say: all thresholds are here.

Refuses to name a cause for what it has no figure of, and to blame a kernel of matrix products for few waves, which is
how the fast ones run.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.occupancy import Occupancy
from tools.profiler.categories import Category
from tools.profiler.result import Cause, KernelRow
from tools.profiler.rocprof.counters import Hardware

_FEW_WAVES_ARE_FINE: frozenset[Category] = frozenset({"gemm", "convolution", "attention"})
# each byte is read or written once, so that bytes over requests tell how full a request is
_STREAMS: frozenset[Category] = frozenset(
    {"norm", "copy and fill", "activation and elementwise", "quantization", "cache", "softmax and reduction"}
)


@dataclass(frozen=True)
class Thresholds:
    """From where on a figure is a cause. Set by reasoning and not by measuring: none is checked on hardware."""

    lds_conflict_share: float = 0.20
    """Of the LDS's working cycles; a conflict of two in every other access gives a third."""
    lds_stall_share: float = 0.05
    """Of the kernel's cycles besides: where the LDS is used little, its conflicts cost little."""
    active_lanes_share: float = 0.50
    """Of a wave; half of them idle is what one branch that splits a wave costs."""
    request_share: float = 0.25
    """Of a line of the L2, used by a request: requests of half a line are usual, of 32 bytes in 128 a waste."""
    occupancy: float = 0.25
    """From two waves of eight on, latency is hidden by instructions of the same wave at best."""
    workgroups_per_unit: float = 1.0
    """Below it some compute units have nothing to do."""


THRESHOLDS = Thresholds()


@dataclass(frozen=True)
class Finding:
    cause: Cause
    why: str


def of(
    row: KernelRow, hardware: Hardware, occupancy: Occupancy | None, limits: Thresholds = THRESHOLDS
) -> list[Finding]:
    """All causes that the figures give, what counters saw first. `row.launch` holds what was merged."""
    return [
        found
        for found in (
            _bank_conflicts(row, limits),
            _uncoalesced(row, hardware, limits),
            _divergence(row, hardware, limits),
            _spilled(row),
            _under_filled(row, hardware, limits),
            _few_waves(row, occupancy, limits),
        )
        if found is not None
    ]


def _bank_conflicts(row: KernelRow, limits: Thresholds) -> Finding | None:
    share, stalled = (row.launch.counters.get(name) for name in ("lds_conflict_share", "lds_stall_share"))
    if share is None or stalled is None or share < limits.lds_conflict_share or stalled < limits.lds_stall_share:
        return None
    why = f"{share:.0%} of the LDS's cycles went to bank conflicts, {stalled:.0%} of the kernel's"
    return Finding("bank conflicts", why)


def _uncoalesced(row: KernelRow, hardware: Hardware, limits: Thresholds) -> Finding | None:
    requests, line = row.launch.counters.get("l2_requests"), hardware.line_bytes
    if not requests or row.bytes is None or line is None or row.category not in _STREAMS:
        return None
    used = row.bytes / requests
    if used >= limits.request_share * line:
        return None
    why = f"a request to the L2 brought {used:.0f} bytes of use, of a line of {line}"
    if (coalescing := row.launch.counters.get("coalescing")) is not None:
        why += f"; {coalescing:.0%} coalesced"
    return Finding("uncoalesced access", why)


def _divergence(row: KernelRow, hardware: Hardware, limits: Thresholds) -> Finding | None:
    lanes, size = row.launch.counters.get("active_lanes"), hardware.architecture.wave_size
    if lanes is None or lanes >= limits.active_lanes_share * size:
        return None
    why = f"{lanes:.0f} of {size} lanes were active"
    if row.launch.workgroup_size is not None and row.launch.workgroup_size < size:
        why += f", and a workgroup has only {row.launch.workgroup_size} work-items"
    return Finding("divergence", why)


def _spilled(row: KernelRow) -> Finding | None:
    if not row.launch.scratch_bytes:
        return None
    why = f"{row.launch.scratch_bytes} bytes of scratch for each work-item: registers spilled, or an array is indexed"
    return Finding("register pressure", why)


def _under_filled(row: KernelRow, hardware: Hardware, limits: Thresholds) -> Finding | None:
    units, workgroups = hardware.compute_units, row.launch.workgroups
    if units is None or workgroups is None or workgroups >= limits.workgroups_per_unit * units:
        return None
    return Finding("under-filled grid", f"{workgroups} workgroups for {units} compute units")


def _few_waves(row: KernelRow, occupancy: Occupancy | None, limits: Thresholds) -> Finding | None:
    if occupancy is None or occupancy.share >= limits.occupancy or row.category in _FEW_WAVES_ARE_FINE:
        return None
    cause: Cause = "low occupancy" if "LDS" in occupancy.limits else "register pressure"
    return Finding(cause, f"{occupancy.waves:g} waves fit on a SIMD, by {occupancy.limit()}")
