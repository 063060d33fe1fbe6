"""A person's defaults are read from their own files, and never from a target's."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import given
from agent.config import RunConfig
from agent.errors import WrongUsage
from tests.files import write_files


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
