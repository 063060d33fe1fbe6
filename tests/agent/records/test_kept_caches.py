"""A compile cache is used again only as it was kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.records.kept_caches import KeptCaches
from tests.files import write_files


@pytest.fixture
def kept(tmp_path: Path) -> KeptCaches:
    found = KeptCaches(tmp_path / "caches")
    found.put("key+compile:max", write_files(tmp_path / "filled", {"inductor/a.py": "a", "triton/b.so": "b"}))
    return found


def test_what_was_kept_first_is_found_again(kept: KeptCaches, tmp_path: Path) -> None:
    kept.put("key+compile:max", write_files(tmp_path / "other", {"inductor/a.py": "other"}))
    found = KeptCaches(tmp_path / "caches").get("key+compile:max")
    assert found is not None and (found / "inductor" / "a.py").read_text() == "a"
    assert kept.get("another") is None


def test_one_that_was_changed_or_not_finished_is_filled_again(kept: KeptCaches, tmp_path: Path) -> None:
    found = kept.get("key+compile:max")
    assert found is not None
    (found / "triton" / "b.so").write_text("c")
    assert kept.get("key+compile:max") is None
    (tmp_path / "caches" / "half" / "inductor").mkdir(parents=True)
    assert kept.get("half") is None
    kept.put("half", write_files(tmp_path / "filled2", {"x": "y"}))
    whole = kept.get("half")
    assert whole is not None and (whole / "x").read_text() == "y" and not (whole / "inductor").exists()


def test_one_that_nobody_needs_goes_alone_and_a_run_that_is_over_leaves_none(kept: KeptCaches, tmp_path: Path) -> None:
    kept.put("another", write_files(tmp_path / "filled2", {"x": "y"}))
    kept.drop("key+compile:max")
    kept.drop("key+compile:max")
    assert kept.get("key+compile:max") is None and kept.get("another") is not None
    assert [path.name for path in (tmp_path / "caches").iterdir() if path.is_dir()] == ["another"]
    kept.clear()
    assert not (tmp_path / "caches").exists()
    kept.clear()
