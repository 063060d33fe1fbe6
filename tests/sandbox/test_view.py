"""What a contained command may see of this machine: enough to run its Python, and nobody's files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import view
from sandbox.errors import SandboxUnavailable
from tests.files import write_files


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A Python in a folder of its own."""
    write_files(tmp_path, {"python3.12/bin/python3.12": "", "python3.12/lib/python3.12/os.py": ""})
    return tmp_path / "python3.12"


def environment(folder: Path, python: Path) -> Path:
    """A virtual environment as `python -m venv` makes it."""
    write_files(folder, {"pyvenv.cfg": f"home = {python.parent}\nversion = 3.12.1\n"})
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(python)
    return folder / "bin" / "python"


def test_an_interpreter_is_shown_with_the_folder_it_lies_in(installed: Path) -> None:
    assert view.of_python(str(installed / "bin/python3.12")) == (installed,)


def test_a_virtual_environment_is_shown_with_what_it_was_made_from(installed: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "project" / ".venv", installed / "bin/python3.12")
    assert set(view.of_python(str(python))) == {tmp_path / "project" / ".venv", installed}


def test_every_link_on_the_way_is_followed_and_relative_ones_too(installed: Path, tmp_path: Path) -> None:
    shims = tmp_path / "shims" / "bin"
    shims.mkdir(parents=True)
    (shims / "python3").symlink_to("../../python3.12/bin/python3.12")
    python = environment(tmp_path / ".venv", shims / "python3")
    assert set(view.of_python(str(python))) == {tmp_path / ".venv", tmp_path / "shims", installed}


def test_a_folder_that_is_a_link_is_shown_under_both_its_names(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(installed)
    assert set(view.of_python(str(tmp_path / "current/bin/python3.12"))) == {tmp_path / "current", installed}


def test_the_systems_own_python_shows_no_more_than_the_systems_programs() -> None:
    if not Path("/bin").is_symlink():
        pytest.skip("this machine keeps /bin apart")
    assert view.of_python("/bin/sh") == (Path("/usr"),)


def test_an_environment_that_comes_from_itself_comes_to_an_end(tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    write_files(tmp_path / ".venv", {"bin/python": "", "pyvenv.cfg": f"home = {python.parent}\n"})
    assert view.of_python(str(python)) == (tmp_path / ".venv",)


def test_nothing_of_a_virtual_environments_is_run_to_find_out(installed: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    trap = installed / "bin/python3.12"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\n")
    trap.chmod(0o755)
    view.of_python(str(environment(tmp_path / ".venv", trap)))
    assert not mark.exists()
    subprocess.run([trap], check=True)
    assert mark.exists()


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="no interpreter") as caught:
        view.of_python(str(tmp_path / "missing"))
    assert "--python" in caught.value.hint


def test_a_whole_home_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_files(tmp_path, {"bin/python3": ""})
    with pytest.raises(SandboxUnavailable, match="without all of"):
        view.of_python(str(tmp_path / "bin/python3"))


def test_of_the_machine_only_programs_libraries_and_their_settings_are_shown(installed: Path) -> None:
    shown = view.of_machine(str(installed / "bin/python3.12"))
    assert Path("/usr") in shown and installed in shown
    for closed in ("/etc/shadow", "/home", "/root", "/var", "/tmp", "/run", str(Path.home() / ".ssh")):
        assert not any(Path(closed).is_relative_to(path) for path in shown), closed


def test_this_interpreter_can_be_shown() -> None:
    shown = view.of_python(sys.executable)
    assert any(Path(os.path.realpath(sys.executable)).is_relative_to(path) for path in shown)
