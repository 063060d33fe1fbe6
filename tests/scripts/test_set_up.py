"""The set-up never replaces a torch, never removes what it did not make, and says in one message what is missing."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from scripts import set_up

ROOT = Path(__file__).resolve().parents[2]
FAKE_TORCH = """
__version__ = "2.9.1+rocm7.0"
class version:
    hip = "7.0"
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that a set-up reads; the module works there too."""
    for name in ("pyproject.toml", "requirements.lock", "scripts/set_up.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(set_up, "ROOT", tmp_path)
    monkeypatch.setattr(set_up, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(set_up, "KFD", tmp_path / "no-such-device")
    return tmp_path


def finds(monkeypatch: pytest.MonkeyPatch, **torch: str) -> dict[str, str]:
    """What any Python is said to have."""
    found = torch or {"problem": "ModuleNotFoundError: torch"}
    monkeypatch.setattr(set_up, "look_for_torch", lambda python: found)
    return found


def makes_nothing(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each time that an environment was asked for; it gets its Python and nothing else."""
    made: list[object] = []

    def make(own_torch: dict[str, str] | None) -> None:
        made.append(own_torch)
        set_up.python().parent.mkdir(exist_ok=True)
        set_up.python().symlink_to(sys.executable)

    monkeypatch.setattr(set_up, "make_venv", make)
    for name in ("install_torch", "install", "check_result"):
        monkeypatch.setattr(set_up, name, lambda *_: None)
    return made


def run_it(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/set_up.py"]
    return subprocess.run(command, cwd=checkout, env={**os.environ, **environment}, capture_output=True, text=True)


def tools_in(folder: Path, *names: str) -> str:
    """A PATH with only these programs."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to("/bin/true")
    return str(folder)


def test_a_python_that_is_too_old_is_told_and_can_read_the_file() -> None:
    with pytest.raises(set_up.SetupError, match=r"Python 3\.11 or newer is needed"):
        set_up.check_machine((3, 10, 12))
    ast.parse((ROOT / "scripts/set_up.py").read_text(), feature_version=(3, 7))


@pytest.mark.parametrize(("there", "missing"), [((), "git is needed"), (("git",), "a C compiler is needed")])
def test_a_missing_program_is_one_message(there: tuple[str, ...], missing: str, checkout: Path) -> None:
    done = run_it(checkout, PATH=tools_in(checkout / "bin", *there), CC="cc")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"set-up: {missing}") and len(done.stderr.splitlines()) == 1
    assert not (checkout / ".venv").exists()


def test_an_environment_that_somebody_else_made_is_left_alone(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine.txt").write_text("precious")
    done = run_it(checkout)
    assert done.returncode == 1 and "was not made by this program" in done.stderr
    assert (checkout / ".venv" / "mine.txt").read_text() == "precious"


@pytest.mark.slow
def test_an_unreachable_index_is_told_and_the_next_call_starts_over(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch)
    for name, value in {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    assert set_up.main() == 1
    assert "No package index could be reached" in capsys.readouterr().err
    assert (set_up.VENV / set_up.UNFINISHED).exists() and not (set_up.VENV / set_up.STAMP).exists()
    (set_up.VENV / "half-made").touch()
    makes_nothing(monkeypatch)
    assert set_up.main() == 0
    assert (set_up.VENV / set_up.STAMP).exists() and not (set_up.VENV / "half-made").exists()


def test_a_complete_environment_is_used_as_it_is_until_the_lock_changes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch)
    made = makes_nothing(monkeypatch)
    assert (set_up.main(), set_up.main(), len(made)) == (0, 0, 1)
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("# another\n")
    assert (set_up.main(), len(made)) == (0, 2)


def test_what_is_left_out_is_added_and_nothing_is_made_anew(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch)
    made, installed = makes_nothing(monkeypatch), list[bool]()
    monkeypatch.setattr(set_up, "install", installed.append)
    for lean in (True, True, False, True, False):
        set_up.set_up(lean=lean)
    assert (len(made), installed) == (1, [True, False])
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("# another\n")
    set_up.set_up(lean=True)

    def interrupted(lean: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(set_up, "install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        set_up.set_up()
    monkeypatch.setattr(set_up, "install", installed.append)
    set_up.set_up(lean=True)
    assert (len(made), installed) == (3, [True, False, True, True]), "what was half added to is made anew"


def test_the_python_of_the_environment_itself_does_not_replace_it(checkout: Path) -> None:
    venv.create(set_up.VENV, symlinks=True)
    (set_up.VENV / set_up.STAMP).write_text('"of another version"')
    command = [str(set_up.python()), "scripts/set_up.py"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 1 and "deactivate" in done.stderr and len(done.stderr.splitlines()) == 1
    assert set_up.python().exists() and (set_up.VENV / set_up.STAMP).exists()


def test_an_environment_that_is_a_link_is_made_again_beside_what_it_leads_to(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch)
    makes_nothing(monkeypatch)
    elsewhere = checkout / "another disk"
    elsewhere.mkdir()
    (elsewhere / set_up.UNFINISHED).touch()
    set_up.VENV.symlink_to(elsewhere)
    assert set_up.main() == 0
    assert (set_up.VENV / set_up.STAMP).exists() and not set_up.VENV.is_symlink()
    assert [path.name for path in elsewhere.iterdir()] == [set_up.UNFINISHED]


@pytest.mark.parametrize(
    ("version", "usable"), [("2.9.0", True), ("2.10.0a0+git1", True), ("3.0.1", True), ("2.8.9", False), ("", False)]
)
def test_torch_2_9_is_the_oldest_that_is_used_and_an_amd_machine_without_it_is_told_how_to_get_one(
    version: str, usable: bool, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"version": version, "file": "/somewhere/torch/__init__.py", "hip": ""} if version else {}
    found = finds(monkeypatch, **there)
    assert set_up.usable_torch() == (found if usable else None)
    set_up.KFD.touch()
    if not usable:
        with pytest.raises(set_up.SetupError, match="Install PyTorch for ROCm"):
            set_up.usable_torch()


@pytest.mark.slow
def test_the_torch_of_an_outer_environment_is_seen_in_place(checkout: Path) -> None:
    outer = checkout / "outer"
    venv.create(outer, symlinks=True)
    (packages,) = outer.glob("lib/python*/site-packages")
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text(FAKE_TORCH)
    script = """
import json, sys
sys.path.insert(0, "scripts")
import set_up
torch = set_up.usable_torch()
set_up.VENV.mkdir()
set_up.make_venv(torch)
print(json.dumps([torch, set_up.look_for_torch(str(set_up.python()))]))
"""
    command = [str(outer / "bin" / "python"), "-c", script]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    theirs, ours = json.loads(done.stdout.splitlines()[-1])
    assert theirs == ours
    assert ours["file"] == str(packages / "torch" / "__init__.py")


def test_a_torch_that_was_replaced_is_an_error(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"version": "2.9.1+rocm7.0", "file": "/opt/torch/__init__.py", "hip": "7.0"}
    finds(monkeypatch, **{**theirs, "version": "2.13.0"})
    with pytest.raises(set_up.SetupError, match="instead of this machine's torch"):
        set_up.check_result(theirs)


@pytest.mark.parametrize("has_triton", [True, False])
def test_a_torch_that_is_there_is_pinned_for_pip_and_its_triton_stays(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, has_triton: bool
) -> None:
    (checkout / ".venv").mkdir()
    commands: list[list[str]] = []
    monkeypatch.setattr(set_up, "run", lambda command, *_: commands.append(command))
    monkeypatch.setattr(set_up, "has_triton", lambda: has_triton)
    set_up.install_torch({"version": "2.9.1+rocm7.0", "file": "x", "hip": "7.0"})
    set_up.install(lean=False)
    fixed = checkout / ".venv" / "ratchet-torch.txt"
    assert fixed.read_text() == "torch==2.9.1+rocm7.0\n"
    assert all(str(fixed) in command for command in commands) and commands
    assert not [word for command in commands for word in command if word.startswith("torch==")]
    assert has_triton != any(set_up.PINNED_TRITON in command for command in commands)
