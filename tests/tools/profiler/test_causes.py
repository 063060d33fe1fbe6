"""A cause is named where a figure says so, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from tools.hardware import ARCHITECTURES, find_device
from tools.occupancy import Occupancy
from tools.profiler import causes
from tools.profiler.categories import Category
from tools.profiler.result import Cause, KernelRow, Launch
from tools.profiler.rocprof.counters import Hardware

MI300X = Hardware(ARCHITECTURES["gfx942"], find_device("AMD Instinct MI300X", "gfx942"))
CONFLICTS = {"lds_conflict_share": 0.5, "lds_stall_share": 0.5}


def fitting(waves: int, limit: str) -> Occupancy:
    return Occupancy(waves, 8, workgroups=waves, by_registers=waves, by_lds=waves, limits=(limit,))


def row(
    category: Category = "norm", bytes: float | None = None, light: float | None = None, **launch: Any
) -> KernelRow:
    given: dict[str, Any] = {"calls": 1, "time_us": 80, "share": 1, "mean_us": 80, "speed_of_light": light}
    return KernelRow(name="k", category=category, bytes=bytes, launch=Launch(**launch), **given)


@pytest.mark.parametrize(
    ("seen", "occupancy", "found"),
    [
        (row(), None, []),
        (row(counters=CONFLICTS), None, ["bank conflicts"]),
        (row(counters={**CONFLICTS, "lds_stall_share": 0.01}), None, []),  # conflicts must cost something
        (row(counters={**CONFLICTS, "lds_conflict_share": 0.1}), None, []),
        (row(counters={"lds_conflict_share": 0.5}), None, []),
        (row(bytes=1600, counters={"l2_requests": 100, "coalescing": 0.3}), None, ["uncoalesced access"]),
        (row(bytes=6400, counters={"l2_requests": 100}), None, []),
        (row("gemm", bytes=1600, counters={"l2_requests": 100}), None, []),  # it reads tiles again and again
        (row(counters={"l2_requests": 100}), None, []),
        (row(counters={"active_lanes": 20}, workgroup_size=32), None, ["divergence"]),
        (row(counters={"active_lanes": 32}), None, []),
        (row(scratch_bytes=64, workgroups=303), None, ["register pressure", "under-filled grid"]),
        (row(scratch_bytes=0, workgroups=304), None, []),
        (row(), fitting(1, "registers"), ["register pressure"]),
        (row(), fitting(1, "LDS"), ["low occupancy"]),
        (row(), fitting(2, "LDS"), []),
        (row("gemm"), fitting(1, "registers"), []),  # matrix kernels run fast with few waves
        (
            row(counters={**CONFLICTS, "active_lanes": 8}, scratch_bytes=8),  # what counters saw comes first
            None,
            ["bank conflicts", "divergence", "register pressure"],
        ),
    ],
)
def test_what_the_tools_of_amd_saw_is_a_cause(seen: KernelRow, occupancy: Occupancy | None, found: list[Cause]) -> None:
    named = causes.of_counters(seen, MI300X, occupancy)
    assert [cause for cause, _ in named] == found and all(why for _, why in named)


@pytest.mark.parametrize(("units", "found"), [(38, []), (304, ["under-filled grid"]), (None, [])])
def test_how_many_units_there_are_is_for_the_device_to_tell(units: int | None, found: list[Cause]) -> None:
    hardware = Hardware(ARCHITECTURES["gfx942"], None, units)
    assert [cause for cause, _ in causes.of_counters(row(workgroups=152), hardware, None)] == found


@pytest.mark.parametrize(
    ("launch", "cause"),
    [
        ({"scratch_bytes": 512}, "register pressure"),
        ({"workgroups": 17}, "under-filled grid"),
        ({"workgroups": 4096, "registers": 255, "occupancy": 0.5}, "unknown"),
        ({"workgroups": 4096, "registers": 320}, "register pressure"),
        ({"workgroups": 4096, "occupancy": 0.12}, "low occupancy"),
    ],
)
def test_what_is_known_of_a_launch_tells_why_it_is_slow(launch: dict[str, Any], cause: str) -> None:
    found, why = causes.of_kernel(row(light=0.3, **launch), 2.0, 132)
    assert found == cause and why
