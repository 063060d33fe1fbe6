"""What a run was asked to do survives its file, and its interpreter is the one a person means."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.config import RUN_ID_PATTERN, RunConfig, active_python, new_run_id


def test_a_new_id_is_a_valid_one_and_not_used_twice() -> None:
    ids = {new_run_id() for _ in range(50)}
    assert len(ids) > 45 and all(re.fullmatch(RUN_ID_PATTERN, one) for one in ids)


def test_the_activated_environment_is_used_by_its_link(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert active_python({"VIRTUAL_ENV": str(tmp_path)}) == python
    assert active_python({"CONDA_PREFIX": str(tmp_path)}) == python
    assert active_python({"VIRTUAL_ENV": str(tmp_path / "gone")}) == Path(sys.executable)


def test_architectures_are_known_ones_or_all(tmp_path: Path) -> None:
    def arch(*names: str) -> tuple[str, ...]:
        return RunConfig(target=tmp_path / "t", entry="b.py", runs_dir=tmp_path / "runs", arch=names).arch

    assert arch("gfx950", "gfx942", "gfx950") == ("gfx950", "gfx942")
    assert set(arch("all")) > {"gfx908", "gfx90a", "gfx942", "gfx950"}
    with pytest.raises(ValidationError, match="not known: gfx000; known are gfx908, gfx90a, gfx942"):
        arch("gfx942", "gfx000")


def test_the_disk_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(ValidationError, match="never written to"):
        RunConfig(target=tmp_path / "target", entry="b.py", runs_dir=tmp_path / "link" / "runs")
    with pytest.raises(ValidationError, match=r"there is no .*/weights to mount"):
        RunConfig(target=tmp_path / "t", entry="b.py", runs_dir=tmp_path / "runs", mounts=(tmp_path / "weights",))
