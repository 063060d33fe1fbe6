"""What a contained command may see of this machine: enough to run its Python, and nobody's files."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import view
from sandbox.errors import SandboxUnavailable
from tests.files import write_files


def install(folder: Path) -> Path:
    """A Python in a folder of its own."""
    write_files(folder, {"bin/python3.12": "", "lib/python3.12/os.py": ""})
    (folder / "bin/python3.12").chmod(0o755)
    return folder


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    return install(tmp_path / "python3.12")


def environment(folder: Path, home: Path | str, link: Path | None = None) -> str:
    """The interpreter of a virtual environment that says it comes from `home`; a link, to this Python unless named."""
    write_files(folder, {"pyvenv.cfg": f"home = {home}\nversion = 3.12.1\n"})
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(link or os.path.realpath(sys.executable))
    return str(folder / "bin" / "python")


def of(python: Path, folder: Path) -> str:
    """The same as `python -m venv` makes it of a Python."""
    return environment(folder, python.parent, python)


def refused(python: Path | str, why: str) -> str:
    """What is to be done about it."""
    with pytest.raises(SandboxUnavailable, match=why) as caught:
        view.of_python(str(python))
    return caught.value.hint


def test_an_interpreter_is_shown_with_its_folder_and_all_that_it_comes_from(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin/python3.12"
    assert view.of_python(str(python)) == (installed,)
    made = tmp_path / "project" / ".venv"
    assert set(view.of_python(of(python, made))) == {made, installed}
    shims = tmp_path / "shims" / "bin"  # every link on the way is followed
    shims.mkdir(parents=True)
    (shims / "python3").symlink_to("../../python3.12/bin/python3.12")
    assert set(view.of_python(of(shims / "python3", tmp_path / ".venv"))) == {tmp_path / ".venv", shims, installed}
    (tmp_path / "current").symlink_to(installed)  # a folder that is a link, under both its names
    assert set(view.of_python(str(tmp_path / "current/bin/python3.12"))) == {tmp_path / "current", installed}
    itself = install(tmp_path / "itself")
    (itself / "pyvenv.cfg").write_text(f"home = {itself / 'bin'}\n")
    assert view.of_python(str(itself / "bin/python3.12")) == (itself,)


def test_this_interpreter_and_the_systems_own_are_shown() -> None:
    shown = view.of_python(sys.executable)
    assert any(Path(os.path.realpath(sys.executable)).is_relative_to(path) for path in shown)
    if Path("/bin").is_symlink():
        assert view.of_python("/bin/sh") == (Path("/usr"),)


def test_nothing_of_a_virtual_environments_is_run_to_find_out(installed: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    trap = installed / "bin/python3.12"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\n")
    trap.chmod(0o755)
    view.of_python(of(trap, tmp_path / ".venv"))
    assert not mark.exists()
    subprocess.run([trap], check=True)
    assert mark.exists()


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "--python" in refused(tmp_path / "missing", "no interpreter")


def test_where_an_environment_says_that_it_comes_from_must_be_a_python(tmp_path: Path) -> None:
    write_files(tmp_path, {"keys/id": "", "half/bin/python": "", "data/bin/python": ""})
    (tmp_path / "half/bin/python").chmod(0o755)  # a program of that name, and no library
    for number, home in enumerate(("keys", "half/bin", "data/bin", "missing")):
        python = environment(tmp_path / f"{number}", tmp_path / home)
        assert "again" in refused(python, r"pyvenv\.cfg \(home = .* leads to no Python")
    refused(environment(tmp_path / "relative", "bin"), "leads to no Python")


def test_the_home_of_any_user_and_what_holds_it_are_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    refused(install(tmp_path / "mine") / "bin/python3.12", "without all of")
    alice = pwd.struct_passwd(("alice", "x", 1000, 1000, "", str(tmp_path / "all" / "alice"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [alice])
    for number, holding in enumerate((tmp_path / "all" / "alice", tmp_path / "all")):
        refused(environment(tmp_path / f"{number}", install(holding) / "bin"), "without all of")
        shutil.rmtree(holding)
    within = install(tmp_path / "all" / "alice" / "python")
    assert within in view.of_python(environment(tmp_path / "within", within / "bin"))


@pytest.mark.parametrize("place", ["closed/python", "user/.ssh", "user/.config/python"])
def test_an_environment_leads_to_no_place_of_keys_or_of_the_system(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_CLOSED", (str(tmp_path / "closed"),))
    held = install(tmp_path / place)
    refused(environment(tmp_path / ".venv", held / "bin"), r"pyvenv\.cfg .*shown to no sandbox")
    (tmp_path / "linked" / "bin").mkdir(parents=True)
    (tmp_path / "linked" / "bin" / "python").symlink_to(held / "bin/python3.12")
    refused(tmp_path / "linked/bin/python", "shown to no sandbox")


def test_an_interpreter_that_is_a_link_to_another_file_shows_nothing_beside_that(tmp_path: Path) -> None:
    write_files(tmp_path, {"keys/id": "", ".venv/pyvenv.cfg": ""})
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").symlink_to(tmp_path / "keys/id")
    refused(tmp_path / ".venv/bin/python", "in no Python's installation")


def test_settings_that_are_a_pipe_or_without_end_are_not_waited_for(installed: Path, tmp_path: Path) -> None:
    python, settings = of(installed / "bin/python3.12", tmp_path / ".venv"), tmp_path / ".venv/pyvenv.cfg"
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        settings.unlink()
        make(settings)
        assert set(view.of_python(python)) == {tmp_path / ".venv/bin", installed}


def test_of_the_machine_only_programs_libraries_and_their_settings_are_shown(installed: Path) -> None:
    shown = view.of_machine(str(installed / "bin/python3.12"))
    assert Path("/usr") in shown and installed in shown
    for closed in ("/etc/shadow", "/home", "/root", "/var", "/tmp", "/run", str(Path.home() / ".ssh")):
        assert not any(Path(closed).is_relative_to(path) for path in shown), closed
