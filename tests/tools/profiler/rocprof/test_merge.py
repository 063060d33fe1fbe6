"""What a tool recorded is added to the kernels it belongs to; times stay the profile's, and doubts are told."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tools.profiler.categories import category_of
from tools.profiler.result import KernelRow, Launch, Profile
from tools.profiler.rocprof import merge as merging
from tools.profiler.rocprof.merge import by_kernel, merge
from tools.profiler.rocprof.recorded import Dispatch, Reading, Recorded, Shape, read_rocprofv3

SAMPLES = Path(__file__).parent / "samples"
GEMM = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1"
NORM = "void aiter::rmsnorm_kernel<__hip_bfloat16, 4>(__hip_bfloat16*, __hip_bfloat16 const*, float, int)"
POINTWISE = "triton_poi_fused_mul_silu_2"


def row(name: str, **fields: object) -> KernelRow:
    given: dict[str, object] = {"calls": 1, "time_us": 100, "share": 0.3, "mean_us": 100, **fields}
    return KernelRow.model_validate({"name": name, "category": category_of(name), **given})


def profile(*rows: KernelRow, device: str = "AMD Instinct MI300X", architecture: str = "gfx942:sramecc+") -> Profile:
    times = {"calls": 1, "call_us": 1000, "busy_us": 900, "span_us": 950, "idle_share": 0.05}
    on = {"entry": "bench.py", "device": device, "architecture": architecture, "notes": ["before"]}
    return Profile.model_validate({**on, **times, "kernels": list(rows)})


def recorded(*names: str) -> Recorded:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            shutil.copy(SAMPLES / f"{name}.csv", folder)
        return read_rocprofv3(Path(folder))


ALL = ("new_kernel_trace", "new_counter_collection")


def test_kernels_get_how_they_were_built_and_what_was_counted() -> None:
    before = profile(
        row(GEMM, calls=2), row(NORM, bytes=1_600_000.0), row(POINTWISE, cause="memory-bound", why="5 TB/s")
    )
    after = merge(before, recorded(*ALL))
    gemm, norm, pointwise = after.kernels
    launch = gemm.launch
    assert (launch.workgroups, launch.workgroup_size, launch.registers, launch.accumulators) == (608, 256, 170, 42)
    assert (launch.lds_bytes, launch.scratch_bytes, launch.occupancy) == (32768, 0, 0.25)
    # sums before ratios: 64,000 and 192,000 thread cycles of 1,000 and 3,000 instructions
    assert launch.counters["SQ_ACTIVE_INST_VALU"] == 2000 and launch.counters["active_lanes"] == 64
    assert launch.counters["l2_hit_share"] == 0.75 and launch.counters["mfma_busy_share"] == pytest.approx(0.5)
    assert (gemm.cause, norm.cause) == ("bank conflicts", "uncoalesced access")
    assert "16 bytes of use" in norm.why and "25% coalesced" in norm.why and "16 of 64 lanes" in norm.why
    assert pointwise.cause == "memory-bound" and pointwise.why.startswith("5 TB/s; 64 bytes of scratch")
    assert [each.time_us for each in after.kernels] == [each.time_us for each in before.kernels]
    assert after.notes == ["before"]
    assert before.kernels[0].launch == Launch()


def test_the_shape_is_the_one_that_took_most_of_the_time() -> None:
    assert by_kernel(recorded("new_kernel_trace"))[GEMM].shape.workgroups == 608
    long = recorded("new_kernel_trace").dispatches[0]
    short = replace(long, end_ns=long.start_ns + 10, shape=Shape(7))
    assert by_kernel(Recorded(dispatches=[short, long, short]))[GEMM].shape.workgroups == 608


def test_what_building_the_model_launched_is_none_of_the_calls() -> None:
    build = Dispatch("copy", 0, 9_000, shape=Shape(workgroups=4096))
    calls = [Dispatch("copy", start, start + 10, shape=Shape(workgroups=8)) for start in (20_000, 30_000)]
    counted = [Reading("copy", "TCC_REQ_sum", value, order=order) for order, value in ((2, 10.0), (1, 1e6), (3, 30.0))]
    before = profile(row("copy")).model_copy(update={"calls": 2})
    after = merge(before, Recorded(dispatches=[*calls, build], readings=counted))
    assert after.kernels[0].launch.workgroups == 8 and after.kernels[0].launch.counters["l2_requests"] == 20
    assert after.notes == ["before"]
    after = merge(before, Recorded(dispatches=[build]))
    assert after.kernels[0].launch.workgroups == 4096 and "launched less often than in the profile" in after.notes[1]


def test_without_register_columns_what_was_known_stays() -> None:
    known = row("subtract_kernel", launch=Launch(registers=99, occupancy=0.5, counters={"mine": 1.0}))
    launch = merge(profile(known), recorded("recorded_kernel_trace")).kernels[0].launch
    assert (launch.registers, launch.occupancy, launch.workgroup_size, launch.counters) == (99, 0.5, 64, {"mine": 1.0})


def test_counters_alone_tell_the_launch_as_well() -> None:
    launch = merge(profile(row(GEMM)), recorded("new_counter_collection")).kernels[0].launch
    assert (launch.workgroups, launch.registers, launch.occupancy) == (608, 170, 0.25)


def test_names_that_could_be_several_are_told_with_what_was_not_seen() -> None:
    found = Recorded(dispatches=[Dispatch("f", 0, 900), Dispatch("other<int>", 0, 100)])
    after = merge(profile(row("f<int>"), row("f<float>"), row("g", share=0.125)), found)
    assert all(each.launch == Launch() for each in after.kernels)
    notes = "\n".join(after.notes)
    assert "2 kernels could be one of several" in notes and "f<int>, f<float>" in notes
    assert "1 kernels (12.5% of the time) were not seen: g" in notes
    after = merge(profile(row("f")), found)
    assert "1 kernels (10.0% of its time) are not in the profile: other<int>" in after.notes[-1]


def test_gfx950_without_accumulation_registers_is_not_believed() -> None:
    before = profile(row(NORM), device="AMD Instinct MI355X", architecture="gfx950")
    plain = [each for each in recorded("new_kernel_trace").dispatches if "rmsnorm" in each.kernel]
    after = merge(before, Recorded(dispatches=plain))
    launch = after.kernels[0].launch
    assert (launch.registers, launch.occupancy, launch.lds_bytes) == (None, None, 1024)
    assert "old versions" in after.notes[-1]
    after = merge(before, recorded("new_kernel_trace"))  # another kernel has some
    assert after.kernels[0].launch.registers == 32


def test_an_architecture_without_a_table_has_no_occupancy_and_no_causes() -> None:
    after = merge(profile(row(GEMM), device="?", architecture="gfx1036"), recorded(*ALL))
    gemm = after.kernels[0]
    assert (gemm.launch.registers, gemm.launch.occupancy, gemm.cause) == (170, None, "unknown")
    assert "active_lanes" not in gemm.launch.counters and "SQ_ACTIVE_INST_VALU" in gemm.launch.counters
    assert any("gfx1036 is not in the table" in note for note in after.notes)


def test_a_figure_that_cannot_be_is_left_out_for_all_and_told_once() -> None:
    readings = [
        Reading(name, counter, value)
        for name in (GEMM, NORM)
        for counter, value in (("SQ_LDS_BANK_CONFLICT", 2.0), ("SQ_LDS_IDX_ACTIVE", 1.0))
    ]
    after = merge(profile(row(GEMM), row(NORM)), Recorded(readings=readings))
    assert "lds_conflict_share" not in after.kernels[0].launch.counters
    assert [note for note in after.notes if "lds_conflict_share is left out for 2 kernels" in note]


def test_several_devices_and_what_the_readers_noted_are_told() -> None:
    found = Recorded([Dispatch("copy", 0, 1, agent) for agent in ("10", "2")], notes=["a.csv is empty"])
    notes = merge(profile(row("copy")), found).notes
    assert notes[1] == "rocprofv3: a.csv is empty"
    assert "rocprofv3: kernels ran on agents 2, 10; all of them are taken together" in notes


def test_names_without_end_are_cut_to_those_launched_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MOST_KERNELS", 2)
    found = Recorded(dispatches=[Dispatch(name, 0, 1) for name in ("a", "b", "b", "c", "c")])
    assert by_kernel(found).keys() == {"b", "c"}
    assert "there are 3 kernels, of which 2 were looked at" in "\n".join(merge(profile(row("b")), found).notes)


def test_what_two_tools_say_is_said_once_and_nothing_changes_nothing() -> None:
    once = merge(profile(row(POINTWISE)), recorded("new_kernel_trace"))
    assert once.kernels[0].why
    assert merge(once, recorded("new_kernel_trace"), "rocprof-compute").kernels == once.kernels
    assert merge(once, Recorded()).kernels == once.kernels
