"""The CSV files of rocprofv3 and rocprof-compute are read in every spelling; see the README of the samples."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.files import write_files
from tools.hardware import ARCHITECTURES, find_device
from tools.profiler.rocprof.counters import Hardware, derive
from tools.profiler.rocprof.merge import by_kernel
from tools.profiler.rocprof.recorded import Recorded, Shape, read_rocprof_compute, read_rocprofv3

SAMPLES = Path(__file__).parent / "samples"
GEMM = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1"
COPIED_BYTES = 16 << 20  # by a launch of `vcopy`


def read(folder: Path, *samples: str) -> Recorded:
    for name in samples:
        shutil.copy(SAMPLES / name, folder)
    return read_rocprofv3(folder)


def test_a_recorded_trace_and_its_counters_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, "recorded_kernel_trace.csv", "recorded_counter_collection.csv")
    assert (len(found.dispatches), len(found.readings)) == (7, 7)
    first = found.dispatches[0]
    assert (first.kernel[:27], first.duration_ns, first.agent) == ("void addition_kernel<float>", 48_744, "1")
    assert first.shape == Shape(16_384, 64, None, None, lds_bytes=0, scratch_bytes=0)
    assert (found.readings[0].counter, found.readings[0].value) == ("SQ_WAVES", 16_384)
    assert found.readings[0].shape.registers == 8
    assert found.notes == ["recorded_kernel_trace.csv lacks vgpr_count, accum_vgpr_count"]


@pytest.mark.parametrize(
    ("folder", "device", "architecture", "registers", "hits"),
    [
        ("MI100", "AMD Instinct MI100", "gfx908", 8, 0.0),
        ("MI200", "AMD Instinct MI250X", "gfx90a", 8, 0.35),
        ("MI300X_A1", "AMD Instinct MI300X", "gfx942", 4, 0.33),
    ],
)
def test_recorded_counters_of_a_copy_give_figures_of_a_copy(
    folder: str, device: str, architecture: str, registers: int, hits: float, tmp_path: Path
) -> None:
    (tmp_path / "workloads").mkdir()
    shutil.copy(SAMPLES / f"{folder}_pmc_perf.csv", tmp_path / "workloads/pmc_perf.csv")
    found = read_rocprof_compute(tmp_path)
    assert (len(found.dispatches), found.notes) == (3, [])
    (seen,) = by_kernel(found).values()
    assert (seen.shape.workgroups, seen.shape.workgroup_size, seen.shape.registers) == (4096, 256, registers)
    figures, impossible = derive(seen.values, Hardware(ARCHITECTURES[architecture], find_device(device, architecture)))
    assert impossible == [] and figures["active_lanes"] == 64
    assert figures["l2_hit_share"] == pytest.approx(hits, abs=0.01)
    assert 60 < COPIED_BYTES / figures["l2_requests"] <= 128  # a request uses half of a line or more


def test_the_new_columns_tell_how_a_kernel_was_launched_and_built(tmp_path: Path) -> None:
    found = read(tmp_path, "new_kernel_trace.csv", "new_counter_collection.csv")
    assert found.notes == [] and len(found.dispatches) == 5
    assert (found.dispatches[0].kernel, found.dispatches[0].agent) == (GEMM, "2")
    assert found.dispatches[0].shape == found.readings[0].shape == Shape(608, 256, 128, 42, 32768, 0)
    spilling = found.dispatches[2].shape  # 128 x 2 work-items in 40 x 20 workgroups: the grid is in work-items
    assert (spilling.workgroups, spilling.workgroup_size, spilling.scratch_bytes) == (800, 256, 64)
    lanes = [each.value for each in found.readings if (each.kernel, each.counter) == (GEMM, "SQ_ACTIVE_INST_VALU")]
    assert lanes == [1000.0, 3000.0]


def test_hostile_names_and_numbers_end_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, "hostile_kernel_trace.csv")
    names = [each.kernel for each in found.dispatches]
    assert names[0] == 'void f<int, 4>(std::map<int, "a,b">)'
    assert all(name.isprintable() for name in names) and "red" in names[1]
    assert names[2:] == ["has_strange_numbers", "last_one"]
    assert found.dispatches[2].shape == Shape()
    assert found.notes == [
        "hostile_kernel_trace.csv has 2 garbled rows, which were passed over",
        "hostile_kernel_trace.csv has 3 rows that make no sense, which were passed over",
    ]


def test_instances_of_one_counter_are_added_and_launches_are_not(tmp_path: Path) -> None:
    rows = "1,1,k,TCC_HIT_sum,2\n1,1,k,TCC_HIT_sum,3\n1,2,k,TCC_HIT_sum,7\n2,1,k,TCC_HIT_sum,11\n"
    wrong = "1,3,k,TCC_HIT_sum,-1\n1,3,k,\x1b[0m,1\n1,3,,TCC_HIT_sum,1\n"
    header = "Process_Id,Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n"
    found = read_rocprofv3(write_files(tmp_path, {"counter_collection.csv": header + rows + wrong}))
    assert [each.value for each in found.readings] == [5.0, 7.0, 11.0]
    assert "3 rows that make no sense" in found.notes[0]


def test_channels_are_added_up_and_an_empty_counter_is_not_zero(tmp_path: Path) -> None:
    content = "Kernel_Name,SQ_LDS_IDX_ACTIVE,TCC_HIT[0],TCC_HIT[1],SQ_INSTS_SMEM\nk,,30,30,5\n,1,1,1,1\n"
    found = read_rocprof_compute(write_files(tmp_path, {"pmc_perf_1.csv": content}))
    assert [(each.counter, each.value) for each in found.readings] == [("TCC_HIT_sum", 60)]
    assert "lacks start_timestamp, end_timestamp" in found.notes[0] and "1 rows that make no sense" in found.notes[1]


def test_partial_workgroups_count_in_each_dimension(tmp_path: Path) -> None:
    header = "Kernel_Name,Start_Timestamp,End_Timestamp,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,"
    rows = "Grid_Size_X,Grid_Size_Y,Grid_Size_Z\nk,0,1,64,1,1,65,65,1\nk,0,1,64,1,,65,65,1\n"
    first, second = read_rocprofv3(write_files(tmp_path, {"kernel_trace.csv": header + rows})).dispatches
    assert (first.shape.workgroups, first.shape.workgroup_size) == (130, 64)
    assert (second.shape.workgroups, second.shape.workgroup_size) == (None, None)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SAMPLES.glob("*.csv"))), st.integers(0), st.binary(max_size=40), st.integers(0, 60))
def test_a_sample_with_anything_put_into_it_does_not_raise(file: Path, at: int, put: bytes, gone: int) -> None:
    content = file.read_bytes()
    at %= len(content)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file.name.removeprefix("MI100_")).write_bytes(content[:at] + put + content[at + gone :])
        for found in (read_rocprofv3(Path(folder)), read_rocprof_compute(Path(folder))):
            assert all(each.kernel.isprintable() for each in (*found.dispatches, *found.readings))
