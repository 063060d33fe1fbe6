"""Counters become figures by formulas that say what they need, and an impossible figure is none."""

from __future__ import annotations

from collections import Counter

import pytest

from tools.hardware import ARCHITECTURES, find_device
from tools.profiler.rocprof.counters import METRICS, Hardware, derive, passes

MI300X = Hardware(ARCHITECTURES["gfx942"], find_device("AMD Instinct MI300X", "gfx942"))
# 10,000 cycles of each of eight dies, 304 compute units
FULL = {
    "SQ_THREAD_CYCLES_VALU": 32_000,
    "SQ_ACTIVE_INST_VALU": 1000,
    "SQ_LDS_BANK_CONFLICT": 304_000,
    "SQ_LDS_IDX_ACTIVE": 1_216_000,
    "GRBM_GUI_ACTIVE": 80_000,
    "SQ_VALU_MFMA_BUSY_CYCLES": 6_080_000,
    "TCC_HIT_sum": 30,
    "TCC_MISS_sum": 10,
    "TCC_REQ_sum": 40,
    "TA_TOTAL_WAVEFRONTS_sum": 100,
    "TCP_TOTAL_ACCESSES_sum": 3200,
    "FETCH_SIZE": 2.0,
    "WRITE_SIZE": 1.0,
}

# what a pass holds of each block of the hardware, and what counters that the tool derives take
ROOM = {"SQ": 8, "GRBM": 2, "TA": 2, "TCP": 4, "TCC": 4}
TAKES = {"FETCH_SIZE": ["TCC"] * 3, "WRITE_SIZE": ["TCC"] * 2}


def test_each_figure_follows_its_formula() -> None:
    found, impossible = derive(FULL, MI300X)
    assert found == pytest.approx(
        {
            "active_lanes": 32,
            "lds_conflict_share": 0.25,
            "lds_stall_share": 0.1,
            "mfma_busy_share": 0.5,
            "l2_hit_share": 0.75,
            "l2_requests": 40,
            "coalescing": 0.5,
            "fetched_bytes": 2048,
            "written_bytes": 1024,
        }
    )
    assert impossible == []


def test_a_figure_needs_all_its_counters() -> None:
    for metric in METRICS:
        for counter in metric.counters:
            without = {name: value for name, value in FULL.items() if name != counter}
            assert metric.name not in derive(without, MI300X)[0]


def test_more_than_there_can_be_is_no_figure() -> None:
    found, impossible = derive({**FULL, "SQ_THREAD_CYCLES_VALU": 100_000, "SQ_LDS_BANK_CONFLICT": 2e6}, MI300X)
    assert {metric.name for metric in impossible} == {"active_lanes", "lds_conflict_share"}
    assert not {"active_lanes", "lds_conflict_share"} & found.keys()


def test_nothing_counted_and_no_device_are_no_fault() -> None:
    found, impossible = derive(dict.fromkeys(FULL, 0.0), MI300X)
    assert impossible == [] and found == {"l2_requests": 0, "fetched_bytes": 0, "written_bytes": 0}
    found, _ = derive(FULL, Hardware(ARCHITECTURES["gfx942"]))
    assert "lds_stall_share" not in found and "mfma_busy_share" not in found and "l2_hit_share" in found


@pytest.mark.parametrize("architecture", ["gfx908", "gfx90a", "gfx942:sramecc+:xnack-", "gfx950"])
def test_every_counter_is_in_one_pass_that_the_hardware_holds(architecture: str) -> None:
    read = [counter for one in passes(architecture) for counter in one]
    wanted = {counter for metric in METRICS for counter in metric.counters}
    assert len(read) == len(set(read))
    assert wanted - set(read) == ({"SQ_VALU_MFMA_BUSY_CYCLES"} if architecture == "gfx908" else set())
    for one in passes(architecture):
        used = Counter(block for counter in one for block in TAKES.get(counter, [counter.partition("_")[0]]))
        assert all(number <= ROOM[block] for block, number in used.items()), one


def test_of_other_hardware_no_counters_are_known() -> None:
    assert not any(passes(architecture) for architecture in ("gfx1100", "gfx1201", "sm_90", ""))
