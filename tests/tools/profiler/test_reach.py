"""What a machine was measured to reach is kept where it can be, and a run needs no place to keep it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools.profiler import reach
from tools.profiler.result import Ceilings

SETTING: Any = SimpleNamespace(threads=1)
MEASURED = Ceilings(memory_gbps=10.0, source="measured")


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every measurement that was asked for; each has the same result."""
    asked: list[Any] = []
    monkeypatch.setattr(reach, "_measure", lambda setting: (asked.append(setting), (MEASURED.model_copy(), []))[1])
    return asked


def test_where_no_cache_can_be_written_every_run_measures_and_nothing_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measurements: list[Any]
) -> None:
    (tmp_path / "file").touch()
    assert reach.ceilings(SETTING, {}, cache=tmp_path / "file" / "cache") == (MEASURED, [])
    for _ in range(2):
        assert reach.ceilings(SETTING, {}, cache=tmp_path / "cache") == (MEASURED, [])
    (kept,) = (tmp_path / "cache").iterdir()
    assert len(measurements) == 2, "the second finds what the first kept"
    kept.unlink()
    kept.mkdir()
    assert reach.ceilings(SETTING, {}, cache=tmp_path / "cache") == (MEASURED, [])
    assert [*(tmp_path / "cache").iterdir()] == [kept] and len(measurements) == 3

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert reach.ceilings(SETTING, {}) == (MEASURED, [])
