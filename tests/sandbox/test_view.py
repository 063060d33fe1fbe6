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


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A Python in a folder of its own."""
    return install(tmp_path / "python3.12")


def install(folder: Path) -> Path:
    write_files(folder, {"bin/python3.12": "", "lib/python3.12/os.py": ""})
    (folder / "bin/python3.12").chmod(0o755)
    return folder


def environment(folder: Path, home: Path | str, link: Path | None = None) -> str:
    """The interpreter of a virtual environment that says it comes from `home`; a link, to this Python unless named."""
    write_files(folder, {"pyvenv.cfg": f"home = {home}\nversion = 3.12.1\n"})
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(link or os.path.realpath(sys.executable))
    return str(folder / "bin" / "python")


def of(python: Path, folder: Path) -> str:
    """The same as `python -m venv` makes it of a Python."""
    return environment(folder, python.parent, python)


def test_an_interpreter_is_shown_with_the_folder_it_lies_in(installed: Path) -> None:
    assert view.of_python(str(installed / "bin/python3.12")) == (installed,)


def test_a_virtual_environment_is_shown_with_what_it_was_made_from(installed: Path, tmp_path: Path) -> None:
    python = of(installed / "bin/python3.12", tmp_path / "project" / ".venv")
    assert set(view.of_python(python)) == {tmp_path / "project" / ".venv", installed}


def test_every_link_on_the_way_is_followed_and_relative_ones_too(installed: Path, tmp_path: Path) -> None:
    shims = tmp_path / "shims" / "bin"
    shims.mkdir(parents=True)
    (shims / "python3").symlink_to("../../python3.12/bin/python3.12")
    python = of(shims / "python3", tmp_path / ".venv")
    assert set(view.of_python(python)) == {tmp_path / ".venv", shims, installed}


def test_a_folder_that_is_a_link_is_shown_under_both_its_names(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(installed)
    assert set(view.of_python(str(tmp_path / "current/bin/python3.12"))) == {tmp_path / "current", installed}


def test_the_systems_own_python_shows_no_more_than_the_systems_programs() -> None:
    if not Path("/bin").is_symlink():
        pytest.skip("this machine keeps /bin apart")
    assert view.of_python("/bin/sh") == (Path("/usr"),)


def test_an_environment_that_comes_from_itself_comes_to_an_end(tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    files = {"bin/python": "", "pyvenv.cfg": f"home = {python.parent}\n", "lib/python3.12/os.py": ""}
    write_files(tmp_path / ".venv", files)
    python.chmod(0o755)
    assert view.of_python(str(python)) == (tmp_path / ".venv",)


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
    with pytest.raises(SandboxUnavailable, match="no interpreter") as caught:
        view.of_python(str(tmp_path / "missing"))
    assert "--python" in caught.value.hint


def test_a_whole_home_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    install(tmp_path)
    with pytest.raises(SandboxUnavailable, match="without all of"):
        view.of_python(str(tmp_path / "bin/python3.12"))


def test_where_an_environment_says_that_it_comes_from_must_be_a_python(tmp_path: Path) -> None:
    write_files(tmp_path, {"keys/id": "", "half/bin/python": "", "data/bin/python": ""})
    (tmp_path / "half/bin/python").chmod(0o755)  # a program of that name, and no library
    for number, home in enumerate(("keys", "half/bin", "data/bin", "missing")):
        python = environment(tmp_path / f"{number}", tmp_path / home)
        with pytest.raises(SandboxUnavailable, match=r"pyvenv\.cfg \(home = .* leads to no Python") as caught:
            view.of_python(python)
        assert "again" in caught.value.hint
    with pytest.raises(SandboxUnavailable, match="leads to no Python"):
        view.of_python(environment(tmp_path / "relative", "bin"))


def test_the_home_of_any_user_and_what_holds_it_are_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = pwd.struct_passwd(("alice", "x", 1000, 1000, "", str(tmp_path / "all" / "alice"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [alice])
    for number, holding in enumerate((tmp_path / "all" / "alice", tmp_path / "all")):
        python = environment(tmp_path / f"{number}", install(holding) / "bin")
        with pytest.raises(SandboxUnavailable, match="without all of"):
            view.of_python(python)
        shutil.rmtree(holding)
    within = install(tmp_path / "all" / "alice" / "python")
    assert within in view.of_python(environment(tmp_path / "within", within / "bin"))


@pytest.mark.parametrize("place", ["closed/python", "user/.ssh", "user/.config/python"])
def test_an_environment_leads_to_no_place_of_keys_or_of_the_system(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_CLOSED", (str(tmp_path / "closed"),))
    held = install(tmp_path / place)
    with pytest.raises(SandboxUnavailable, match=r"pyvenv\.cfg .*shown to no sandbox"):
        view.of_python(environment(tmp_path / ".venv", held / "bin"))
    (tmp_path / "linked" / "bin").mkdir(parents=True)
    (tmp_path / "linked" / "bin" / "python").symlink_to(held / "bin/python3.12")
    with pytest.raises(SandboxUnavailable, match="shown to no sandbox"):
        view.of_python(str(tmp_path / "linked/bin/python"))


def test_an_interpreter_that_is_a_link_to_another_file_shows_nothing_beside_that(tmp_path: Path) -> None:
    write_files(tmp_path, {"keys/id": "", ".venv/pyvenv.cfg": ""})
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").symlink_to(tmp_path / "keys/id")
    with pytest.raises(SandboxUnavailable, match="in no Python's installation"):
        view.of_python(str(tmp_path / ".venv/bin/python"))


def test_settings_that_are_a_pipe_or_without_end_are_not_waited_for(installed: Path, tmp_path: Path) -> None:
    python = of(installed / "bin/python3.12", tmp_path / ".venv")
    (tmp_path / ".venv/pyvenv.cfg").unlink()
    os.mkfifo(tmp_path / ".venv/pyvenv.cfg")
    assert set(view.of_python(python)) == {tmp_path / ".venv/bin", installed}
    (tmp_path / ".venv/pyvenv.cfg").unlink()
    (tmp_path / ".venv/pyvenv.cfg").symlink_to("/dev/zero")
    assert set(view.of_python(python)) == {tmp_path / ".venv/bin", installed}


def test_of_the_machine_only_programs_libraries_and_their_settings_are_shown(installed: Path) -> None:
    shown = view.of_machine(str(installed / "bin/python3.12"))
    assert Path("/usr") in shown and installed in shown
    for closed in ("/etc/shadow", "/home", "/root", "/var", "/tmp", "/run", str(Path.home() / ".ssh")):
        assert not any(Path(closed).is_relative_to(path) for path in shown), closed


def test_this_interpreter_can_be_shown() -> None:
    shown = view.of_python(sys.executable)
    assert any(Path(os.path.realpath(sys.executable)).is_relative_to(path) for path in shown)
