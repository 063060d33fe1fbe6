"""A build is profiled in the sandbox: what comes back is a profile, whatever the build does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.evals.arena import Arena
from tools.errors import WorkloadError
from tools.profiler import GenericProfiler, profile_module, reach
from tools.profiler.collect import Collector
from tools.profiler.result import Ceilings


@pytest.fixture
def collector(arena: Arena) -> Collector:
    ceilings = Ceilings(memory_gbps=10.0, peak_tflops={"float32": 0.1}, source="made up")
    return Collector(arena.referee.setting, arena.referee.workload, ceilings, calls=4)


def test_a_call_is_taken_apart(arena: Arena, collector: Collector, tmp_path: Path) -> None:
    found = collector.profile(arena.referee.pristine, tmp_path / "trace.json")
    assert (found.calls, found.device) == (4, "cpu")
    assert sum(each.share for each in found.categories) == pytest.approx(1.0)
    assert found.unclassified < 0.05
    assert {"Model"} <= {row.name for row in found.modules}
    assert any(row.where.startswith("layers.py:") for row in found.modules)
    assert any(row.category == "gemm" and row.tflops for row in found.kernels)
    assert 0 < found.busy_us <= found.call_us * 1.01
    assert [step.step for step in found.steps][-1] == "compose_stack"
    assert (tmp_path / "trace.json").read_text().lstrip().startswith("{")


DIES = """
import os, torch

def dies(self, x, forward=Model.forward):
    if torch.autograd._profiler_enabled():
        os._exit(3)
    return forward(self, x)

Model.forward = dies
"""
LEADS_AWAY = """
import os, torch

export = torch.profiler.profile.export_chrome_trace

def lead_away(self, path):
    os.symlink("/etc/passwd", path)

torch.profiler.profile.export_chrome_trace = lead_away
"""


@pytest.mark.parametrize(
    ("name", "code", "says"), [("dies", DIES, "fails under the profiler"), ("leads-away", LEADS_AWAY, "left no trace")]
)
def test_a_failed_run_is_a_note(
    name: str, code: str, says: str, arena: Arena, collector: Collector, tmp_path: Path
) -> None:
    found = collector.profile(arena.appended(name, code), tmp_path / "trace.json")
    assert found.kernels == [] and found.call_us > 0
    assert found.steps == []  # of a call of which nothing was seen no step can be said to gain all
    assert any(says in note for note in found.notes)


@pytest.mark.slow
def test_what_the_machine_reaches_is_measured_once(arena: Arena, tmp_path: Path) -> None:
    environment = dict(arena.referee.workload.environment)
    found, notes = reach.ceilings(arena.referee.setting, environment, tmp_path)
    assert notes == [] and found.source == "measured"
    assert found.memory_gbps and found.peak_tflops["float32"] and found.launch_us
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text().replace('"measured"', '"kept"'))
    again, _ = reach.ceilings(arena.referee.setting, environment, tmp_path)
    assert again.source == "kept" and again.memory_gbps == found.memory_gbps


def test_a_measurement_beyond_the_datasheet_is_not_believed() -> None:
    device = reach.device_of({"gpu_name": "AMD Instinct MI300X", "gfx": "gfx942"})
    notes: list[str] = []
    found = reach._with_datasheet(
        Ceilings(memory_gbps=9000.0, peak_tflops={"bfloat16": 700.0}, source="measured"), device, notes
    )
    assert (found.memory_gbps, found.peak_tflops["bfloat16"]) == (5300.0, 700.0)
    assert found.peak_tflops["float8"] == 2614.9 and "memory was measured above" in notes[0]
    partition = {"gpu_name": "AMD Instinct MI300X", "gfx": "gfx942", "compute_units": 38}
    assert reach.device_of(partition) is None  # the datasheet is of the whole card


def test_without_a_cache_every_run_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every measurement has the same result."""
    setting: Any = SimpleNamespace(threads=1)
    measured, measurements = Ceilings(memory_gbps=10.0, source="measured"), list[Any]()

    def measure(setting: Any) -> tuple[Ceilings, list[str]]:
        measurements.append(setting)
        return measured.model_copy(), []

    monkeypatch.setattr(reach, "_measure", measure)
    (tmp_path / "file").touch()
    assert reach.ceilings(setting, {}, cache=tmp_path / "file" / "cache") == (measured, [])
    for _ in range(2):
        assert reach.ceilings(setting, {}, cache=tmp_path / "cache") == (measured, [])
    (kept,) = (tmp_path / "cache").iterdir()
    assert len(measurements) == 2, "the second finds what the first kept"
    kept.unlink()
    kept.mkdir()
    assert reach.ceilings(setting, {}, cache=tmp_path / "cache") == (measured, [])
    assert [*(tmp_path / "cache").iterdir()] == [kept] and len(measurements) == 3

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert reach.ceilings(setting, {}) == (measured, [])


# -- as a library

TASK = Path(__file__).resolve().parents[3] / "evals" / "tasks" / "topk_sort"
PROFILE_SCRIPT = (TASK / "routing.py").read_text() + (TASK / "bench.py").read_text().replace(
    "from routing import Router\n", ""
)


@pytest.mark.usefixtures("forks")
def test_a_script_is_profiled_by_its_text() -> None:
    analysis = profile_module(
        script_content=PROFILE_SCRIPT, module_name="topk_sort", gpu_id=0, sandbox="local", calls=3
    )
    assert analysis.primary_bottleneck_component and analysis.primary_bottleneck_type
    assert (analysis.entry, analysis.calls) == ("topk_sort", 3)
    assert {"aten::topk", "aten::sort"} <= {row.name for row in analysis.kernels}
    assert any(each.category == "moe and sorting" for each in analysis.categories)


@pytest.mark.usefixtures("forks")
def test_a_script_that_fails_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(WorkloadError, match="raises when it is loaded"):
        GenericProfiler(sandbox="local").profile("raise ValueError('no')", "../../broken")
    assert list(tmp_path.iterdir()) == []
