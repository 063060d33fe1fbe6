"""The profiler as a library: the call of `profile_module` that users know works on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.errors import WorkloadError
from tools.profiler import GenericProfiler, profile_module

TASK = Path(__file__).resolve().parents[3] / "evals" / "tasks" / "topk_sort"
PROFILE_SCRIPT = (TASK / "routing.py").read_text() + (TASK / "bench.py").read_text().replace(
    "from routing import Router\n", ""
)

pytestmark = pytest.mark.usefixtures("forks")


def test_a_script_is_profiled_by_its_text() -> None:
    analysis = profile_module(
        script_content=PROFILE_SCRIPT, module_name="topk_sort", gpu_id=0, sandbox="local", calls=3
    )
    assert analysis.primary_bottleneck_component
    assert analysis.primary_bottleneck_type
    assert isinstance(analysis.recommendations, list)
    assert (analysis.entry, analysis.calls) == ("topk_sort", 3)
    assert {"aten::topk", "aten::sort"} <= {row.name for row in analysis.kernels}
    assert any(each.category == "moe and sorting" for each in analysis.categories)


def test_a_script_that_fails_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(WorkloadError, match="raises when it is loaded"):
        GenericProfiler(sandbox="local").profile("raise ValueError('no')", "../../broken")
    assert list(tmp_path.iterdir()) == []
