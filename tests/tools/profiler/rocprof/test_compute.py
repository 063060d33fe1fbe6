"""What rocprof-compute leaves is read like a trace with counters; the sample is written by hand, see its README.md."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.profiler.rocprof import compute
from tools.profiler.rocprof.csv_files import Shape
from tools.profiler.rocprof.merge import summarise

SAMPLE = Path(__file__).parent / "samples" / "pmc_perf.csv"
GEMM = "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1"


def test_launches_and_counters_are_read_and_channels_added_up() -> None:
    kernels = summarise(compute.read(SAMPLE))
    assert kernels[GEMM].shape == Shape(608, 256, 128, 42, 32768, 0)
    assert kernels[GEMM].time_ns == 120_000
    assert kernels[GEMM].values == {
        "SQ_LDS_BANK_CONFLICT": 100,
        "SQ_LDS_IDX_ACTIVE": 400,
        "TCC_HIT_sum": 60,
        "TCC_MISS_sum": 40,
    }


def test_a_counter_that_is_empty_for_a_launch_is_not_zero() -> None:
    (norm,) = [seen for name, seen in summarise(compute.read(SAMPLE)).items() if name != GEMM]
    assert norm.values == {"SQ_LDS_IDX_ACTIVE": 0, "TCC_HIT_sum": 20, "TCC_MISS_sum": 0}


def test_it_is_found_below_the_folder_of_the_workload(tmp_path: Path) -> None:
    for place in ("workloads/ratchet/MI300X_A1/pmc_perf.csv", "workloads/ratchet/MI300X_A1/timestamps.csv"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SAMPLE, tmp_path / place)
    found = compute.read_folder(tmp_path)
    assert (len(found.dispatches), found.notes) == (2, [])


def test_a_file_without_launches_or_kernels_is_told(tmp_path: Path) -> None:
    (tmp_path / "pmc_perf.csv").write_text("Kernel_Name,SQ_WAVES\nk,1\n,1\n")
    found = compute.read_folder(tmp_path)
    assert found.dispatches == [] and found.readings == []
    assert "lacks start_timestamp, end_timestamp" in found.notes[0] and "1 rows without a kernel" in found.notes[1]
    (tmp_path / "pmc_perf.csv").write_text("Metric,Value\nx,1\n")
    assert "lacks the column kernel_name" in compute.read_folder(tmp_path).notes[0]
