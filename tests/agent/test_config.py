"""What a run was asked to do survives its file; defaults are read from a person's own files, never from a target's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent import given
from agent.config import RUN_ID_PATTERN, RunConfig, active_python, new_run_id
from agent.errors import WrongUsage
from tests.files import write_files


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


def test_the_nearest_file_of_the_person_counts(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"target/bench.py": "", "work/x": "", "home/ratchet/ratchet.toml": 'model = "far"\ndollars = 2\n'}
    )
    target, here, home = tmp_path / "target", tmp_path / "work", tmp_path / "home"
    assert given.settings(target, here, home) == {"model": "far", "dollars": 2}
    write_files(here, {"ratchet.toml": 'model = "near"\nskills = ["packs"]\n'})
    assert given.settings(target, here, home) == {"model": "near", "skills": [here / "packs"]}
    assert given.settings(target, tmp_path / "home", tmp_path / "none") == {}


@pytest.mark.guard("model address")
def test_what_lies_in_or_around_a_target_is_not_read(tmp_path: Path) -> None:
    theirs = {
        "ratchet.toml": 'base_url = "http://elsewhere"\n',
        "package/inside/x": "",
        "package/ratchet.toml": "tokens = 1",
    }
    clone = write_files(tmp_path / "clone", theirs)
    for here in (clone, clone / "package", clone / "package" / "inside"):
        assert given.settings(clone / "package", here, tmp_path) == {}
    (tmp_path / "link").symlink_to(clone)
    assert given.settings(clone, tmp_path / "link", tmp_path) == {}


@pytest.mark.parametrize("text", ["model = ", 'sandbox = "local"\n', 'target = "x"\n', "skills = 3\n"])
def test_what_it_cannot_have_is_said(text: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"ratchet.toml": text})
    with pytest.raises(WrongUsage, match=r"ratchet\.toml"):
        given.settings(tmp_path.parent / "target", tmp_path, tmp_path / "home")


def test_it_has_names_that_a_run_has() -> None:
    assert set(RunConfig.model_fields) >= given.SETTINGS_KEYS
