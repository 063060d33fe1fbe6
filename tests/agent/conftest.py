"""Real repositories to work on: a user's git, with the user's home in a folder of the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.repository.stack import Change, Stack
from agent.repository.target import import_target
from tests.agent.fixture_types import TIME, UserGit
from tests.agent.proposed import copy_of
from tests.files import write_files
from tests.observed import Target
from tools.diff.patch import make_diff
from tools.observation import Observation


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that nobody's own ignore file has a say."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return folder


@pytest.fixture
def user_git(home: Path) -> UserGit:
    """git as the user of a repository runs it: with the repository's own configuration."""

    def run(folder: Path, *arguments: str, check: bool = True) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1"}
        for role in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{role}_NAME": "User", f"GIT_{role}_EMAIL": "user@example.org"}
        done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def repository(tmp_path: Path, user_git: UserGit) -> Callable[..., Path]:
    """Make a repository with one commit of the given files."""

    def make(files: Mapping[str, str | bytes], *options: str, name: str = "target") -> Path:
        folder = tmp_path / name
        write_files(folder, files)
        user_git(folder, "init", "--quiet", "--initial-branch=main", *options)
        user_git(folder, "add", "--all")
        user_git(folder, "commit", "--quiet", "--message=first")
        return folder

    return make


@pytest.fixture
def write() -> Callable[[Path, Mapping[str, str | bytes]], Path]:
    return write_files


@pytest.fixture
def contents() -> Callable[[Path], dict[str, tuple[bool, bytes | str]]]:
    """What is in a folder, version control apart: for each path whether it is executable, and content or link."""

    def read(folder: Path) -> dict[str, tuple[bool, bytes | str]]:
        found: dict[str, tuple[bool, bytes | str]] = {}
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[name] = (False, str(path.readlink()))
            elif path.is_file() and ".git" not in path.relative_to(folder).parts:
                found[name] = (os.access(path, os.X_OK) and bool(path.stat().st_mode & 0o100), path.read_bytes())
        return found

    return read


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def new_stack(home: Path) -> Callable[[Path, Path], Stack]:
    """Import a target into the folder of a run and make its stack."""

    def make(target: Path, run: Path) -> Stack:
        return Stack.create(run / "stack", import_target(target, run / "pristine"), time_unix=TIME)

    return make


@pytest.fixture
def change() -> Callable[..., Change]:
    """A change that gives the files of a commit, the top when none is named, these contents."""

    def make(stack: Stack, attempt_id: str, files: dict[str, str | bytes | None], *, on: str | None = None) -> Change:
        tree = stack.folder / f"tree-{attempt_id}"
        stack.materialise(on or stack.top, tree)
        diff = make_diff(tree, files)
        shutil.rmtree(tree)
        return Change(attempt_id, diff, f"Change {attempt_id}\n\nWhy: it is faster.", TIME, on)

    return make


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Target, Observation]:
    target = copy_of(tmp_path_factory.mktemp("decoder"), "decoder")
    return target, target.observe({"batch": 1, "tokens": 32})
