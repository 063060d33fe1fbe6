"""A cause is named where a figure says so, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from tools.hardware import ARCHITECTURES, find_device
from tools.occupancy import Occupancy
from tools.profiler.categories import Category
from tools.profiler.result import Cause, KernelRow, Launch
from tools.profiler.rocprof import causes
from tools.profiler.rocprof.causes import THRESHOLDS
from tools.profiler.rocprof.counters import Hardware

MI300X = Hardware(ARCHITECTURES["gfx942"], find_device("AMD Instinct MI300X", "gfx942"))


def fitting(waves: int, limit: str) -> Occupancy:
    return Occupancy(waves, 8, workgroups=waves, by_registers=waves, by_lds=waves, limits=(limit,))


def named(
    category: Category = "norm", occupancy: Occupancy | None = None, bytes: float | None = None, **launch: Any
) -> list[Cause]:
    row = KernelRow(
        name="k", category=category, calls=1, time_us=1, share=1, mean_us=1, bytes=bytes, launch=Launch(**launch)
    )
    found = causes.of(row, MI300X, occupancy)
    assert all(each.why for each in found)
    return [each.cause for each in found]


def test_nothing_known_is_no_cause() -> None:
    assert named() == []


@pytest.mark.parametrize(
    ("share", "stalled", "found"),
    [(0.5, 0.5, ["bank conflicts"]), (0.5, 0.01, []), (0.1, 0.5, []), (0.5, None, [])],
)
def test_bank_conflicts_must_cost_something(share: float, stalled: float | None, found: list[Cause]) -> None:
    counters = {"lds_conflict_share": share} | ({} if stalled is None else {"lds_stall_share": stalled})
    assert named(counters=counters) == found


def test_requests_that_bring_little_are_uncoalesced_where_each_byte_is_read_once() -> None:
    assert named(bytes=1600, counters={"l2_requests": 100, "coalescing": 0.3}) == ["uncoalesced access"]
    assert named(bytes=6400, counters={"l2_requests": 100}) == []
    assert named("gemm", bytes=1600, counters={"l2_requests": 100}) == []  # it reads tiles again and again
    assert named(counters={"l2_requests": 100}) == []


def test_idle_lanes_are_divergence() -> None:
    assert named(counters={"active_lanes": 20}, workgroup_size=32) == ["divergence"]
    assert named(counters={"active_lanes": 32}) == []


def test_scratch_is_register_pressure_and_few_workgroups_leave_units_idle() -> None:
    assert named(scratch_bytes=64, workgroups=303) == ["register pressure", "under-filled grid"]
    assert named(scratch_bytes=0, workgroups=304) == []


@pytest.mark.parametrize(("units", "found"), [(38, []), (304, ["under-filled grid"]), (None, [])])
def test_how_many_units_there_are_is_for_the_device_to_tell(units: int | None, found: list[Cause]) -> None:
    row = KernelRow(name="k", category="norm", calls=1, time_us=1, share=1, mean_us=1, launch=Launch(workgroups=152))
    hardware = Hardware(ARCHITECTURES["gfx942"], None, units)
    assert [each.cause for each in causes.of(row, hardware, None)] == found


@pytest.mark.parametrize(
    ("category", "occupancy", "found"),
    [
        ("norm", fitting(1, "registers"), ["register pressure"]),
        ("norm", fitting(1, "LDS"), ["low occupancy"]),
        ("norm", fitting(2, "LDS"), []),
        ("gemm", fitting(1, "registers"), []),
    ],
)
def test_few_waves_are_a_cause_but_for_matrix_products(
    category: Category, occupancy: Occupancy, found: list[Cause]
) -> None:
    assert named(category, occupancy) == found


def test_what_counters_saw_comes_before_what_the_launch_suggests() -> None:
    counters = {"lds_conflict_share": 0.5, "lds_stall_share": 0.5, "active_lanes": 8}
    assert named(counters=counters, scratch_bytes=8) == ["bank conflicts", "divergence", "register pressure"]


def test_every_threshold_can_be_moved() -> None:
    row = KernelRow(name="k", category="norm", calls=1, time_us=1, share=1, mean_us=1, launch=Launch(workgroups=400))
    assert causes.of(row, MI300X, None) == []
    twice = causes.Thresholds(workgroups_per_unit=2 * THRESHOLDS.workgroups_per_unit)
    assert [each.cause for each in causes.of(row, MI300X, None, twice)] == ["under-filled grid"]
