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


@pytest.fixture(autouse=True)
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every measurement that was asked for; each has the same result."""
    asked: list[Any] = []

    def measure(setting: Any) -> tuple[Ceilings, list[str]]:
        asked.append(setting)
        return MEASURED.model_copy(), []

    monkeypatch.setattr(reach, "_measure", measure)
    return asked


def test_a_cache_that_cannot_be_made_keeps_nothing(tmp_path: Path, measurements: list[Any]) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert reach.ceilings(SETTING, {}, cache=tmp_path / "file" / "cache") == (MEASURED, [])
    assert len(measurements) == 2


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert reach.ceilings(SETTING, {}) == (MEASURED, [])


def test_a_file_that_cannot_be_replaced_leaves_nothing_half_written(tmp_path: Path, measurements: list[Any]) -> None:
    reach.ceilings(SETTING, {}, cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.unlink()
    kept.mkdir()
    assert reach.ceilings(SETTING, {}, cache=tmp_path) == (MEASURED, [])
    assert [*tmp_path.iterdir()] == [kept] and len(measurements) == 2
