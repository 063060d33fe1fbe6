"""rocprofv3's CSV files of every generation say the same; the samples are written by hand, see their README.md."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.profiler.rocprof import csv_files
from tools.profiler.rocprof.csv_files import Recorded, Shape

SAMPLES = Path(__file__).parent / "samples"
GEMM = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1"


def traced(name: str) -> Recorded:
    return csv_files.read_kernel_trace(SAMPLES / f"{name}_kernel_trace.csv")


def test_the_new_columns_tell_how_a_kernel_was_launched_and_built() -> None:
    found = traced("new")
    assert found.notes == [] and len(found.dispatches) == 5
    first, _, spilling = found.dispatches[:3]
    assert (first.kernel, first.duration_ns, first.agent) == (GEMM, 120_000, "2")
    assert first.shape == Shape(608, 256, registers=128, accumulators=42, lds_bytes=32768, scratch_bytes=0)
    # 128 x 2 work-items in 40 x 20 workgroups: the grid is in work-items
    assert (spilling.shape.workgroups, spilling.shape.workgroup_size, spilling.shape.scratch_bytes) == (800, 256, 64)


def test_the_old_columns_tell_less_and_what_they_lack_is_said() -> None:
    found = traced("old")
    assert found.dispatches[0].shape == Shape(608, 256, None, None, lds_bytes=32768, scratch_bytes=0)
    assert found.dispatches[0].agent == "4" and found.dispatches[1].shape.scratch_bytes == 16
    assert found.notes == ["old_kernel_trace.csv lacks vgpr_count, accum_vgpr_count"]


def test_a_converted_database_says_the_same_as_the_tool_itself() -> None:
    assert traced("rocpd").dispatches == traced("new").dispatches[:1]


def test_devices_are_told_apart() -> None:
    assert [each.agent for each in traced("agents").dispatches] == ["2", "10"]


def test_a_row_that_is_cut_off_is_not_taken_for_a_shorter_number() -> None:
    found = traced("cut")
    assert [each.kernel for each in found.dispatches] == [GEMM]
    assert found.notes == ["cut_kernel_trace.csv has 1 garbled rows, which were passed over"]


def test_hostile_names_and_numbers_end_nothing() -> None:
    found = traced("hostile")
    names = [each.kernel for each in found.dispatches]
    assert names[0] == 'void f<int, 4>(std::map<int, "a,b">)'
    assert all(name.isprintable() for name in names) and "red" in names[1]
    assert names[2:] == ["has_strange_numbers", "last_one"]
    assert found.dispatches[2].shape == Shape()
    assert found.notes == [
        "hostile_kernel_trace.csv has 2 garbled rows, which were passed over",
        "hostile_kernel_trace.csv has 3 rows that make no sense, which were passed over",
    ]


def test_counters_are_by_launch() -> None:
    found = csv_files.read_counter_collection(SAMPLES / "new_counter_collection.csv")
    lanes = [each.value for each in found.readings if (each.kernel, each.counter) == (GEMM, "SQ_ACTIVE_INST_VALU")]
    assert lanes == [1000.0, 3000.0] and found.notes == []
    assert found.readings[0].shape == Shape(608, 256, 128, 42, 32768, 0)


def test_instances_of_one_counter_are_added_and_launches_are_not(tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    path.write_text(
        "Process_Id,Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n"
        "1,1,k,TCC_HIT_sum,2\n1,1,k,TCC_HIT_sum,3\n1,2,k,TCC_HIT_sum,7\n2,1,k,TCC_HIT_sum,11\n"
        "1,3,k,TCC_HIT_sum,-1\n1,3,k,\x1b[0m,1\n1,3,,TCC_HIT_sum,1\n"
    )
    found = csv_files.read_counter_collection(path)
    assert [each.value for each in found.readings] == [5.0, 7.0, 11.0]
    assert "3 rows that make no sense" in found.notes[0]


def test_statistics_and_copies_are_read() -> None:
    statistics = csv_files.read_kernel_stats(SAMPLES / "new_kernel_stats.csv").statistics
    assert (statistics[0].kernel, statistics[0].calls, statistics[0].total_ns) == (GEMM, 3, 250_000)
    (copy,) = csv_files.read_memory_copies(SAMPLES / "new_memory_copy_trace.csv").copies
    assert (copy.direction, copy.end_ns - copy.start_ns) == ("MEMORY_COPY_HOST_TO_DEVICE", 2500)


def test_the_files_of_all_processes_are_taken_together(tmp_path: Path) -> None:
    for target in ("host/101_kernel_trace.csv", "host/102_kernel_trace.csv", "ratchet_kernel_trace.csv"):
        (tmp_path / target).parent.mkdir(exist_ok=True)
        shutil.copy(SAMPLES / "new_kernel_trace.csv", tmp_path / target)
    shutil.copy(SAMPLES / "new_kernel_stats.csv", tmp_path / "host/101_kernel_stats.csv")
    (tmp_path / "host/101_agent_info.csv").write_text("anything\n")
    found = csv_files.read_folder(tmp_path)
    assert (len(found.dispatches), len(found.statistics), found.notes) == (15, 3, [])


@pytest.mark.parametrize("content", [b"", b"\x00" * 5000, b"\xff\xfe\n" * 50, b'"' * 100_000, b"Kernel_Name\n" * 9])
def test_no_content_raises(content: bytes, tmp_path: Path) -> None:
    for ending in ("kernel_trace", "counter_collection", "kernel_stats", "memory_copy_trace"):
        (tmp_path / f"1_{ending}.csv").write_bytes(content)
    found = csv_files.read_folder(tmp_path)
    assert not (found.dispatches or found.readings or found.statistics or found.copies)
    assert len(found.notes) == 4


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SAMPLES.glob("new_*.csv"))), st.integers(0), st.binary(max_size=40), st.integers(0, 60))
def test_a_sample_with_anything_put_into_it_does_not_raise(file: Path, at: int, put: bytes, gone: int) -> None:
    content = file.read_bytes()
    at %= len(content)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file.name).write_bytes(content[:at] + put + content[at + gone :])
        found = csv_files.read_folder(Path(folder))
    kernels = [each.kernel for each in found.dispatches] + [each.kernel for each in found.readings]
    assert all(name.isprintable() for name in kernels)


def test_partial_workgroups_count_in_each_dimension(tmp_path: Path) -> None:
    header = "Kernel_Name,Start_Timestamp,End_Timestamp,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,"
    path = tmp_path / "kernel_trace.csv"
    path.write_text(f"{header}Grid_Size_X,Grid_Size_Y,Grid_Size_Z\nk,0,1,64,1,1,65,65,1\nk,0,1,64,1,,65,65,1\n")
    first, second = csv_files.read_kernel_trace(path).dispatches
    assert (first.shape.workgroups, first.shape.workgroup_size) == (130, 64)
    assert (second.shape.workgroups, second.shape.workgroup_size) == (None, None)
