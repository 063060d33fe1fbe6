"""A user's machine in a folder: a home, git as the user runs it, repositories, and the folder of one run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.repository.export import Exported
from agent.repository.stack import Change, Stack
from agent.repository.target import import_target
from tests.files import write_files
from tools.diff.patch import PatchFinding, make_diff
from tools.diff.patch_rules import PatchRules

RULES = PatchRules()
TIME = 1_700_000_000


@dataclass(frozen=True)
class Lab:
    tmp_path: Path

    @property
    def home(self) -> Path:
        return self.tmp_path / "home"

    @property
    def run(self) -> Path:
        return self.tmp_path / "run"

    def git(self, folder: Path, *arguments: str, check: bool = True) -> str:
        """git as the user of a repository runs it: with the repository's own configuration."""
        return self._run(folder, "git", *arguments, check=check)

    def sh(self, folder: Path, script: str) -> str:
        """Commands of the user."""
        return self._run(folder, "sh", "-ec", script)

    def _run(self, folder: Path, *command: str, check: bool = True) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1"}
        for role in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{role}_NAME": "User", f"GIT_{role}_EMAIL": "user@example.org"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def repository(self, files: Mapping[str, str | bytes], *options: str, name: str = "target") -> Path:
        """A repository with one commit of these files."""
        folder = write_files(self.tmp_path / name, files)
        self.git(folder, "init", "--quiet", "--initial-branch=main", *options)
        self.git(folder, "add", "--all")
        self.git(folder, "commit", "--quiet", "--message=first")
        return folder

    def new_stack(self, target: Path, run: Path | None = None) -> Stack:
        """Import a target into the folder of a run and make its stack."""
        run = run or self.run
        return Stack.create(run / "stack", import_target(target, run / "pristine"), time_unix=TIME)

    def stack(self, files: Mapping[str, str | bytes]) -> Stack:
        """The stack of a run on a repository of these files."""
        return self.new_stack(self.repository(files))

    def change(self, stack: Stack, name: str, files: Mapping[str, str | bytes | None]) -> Change:
        """A change, made on the top, that gives files these contents."""
        tree = stack.folder / f"tree-{name}"
        stack.materialise(stack.top, tree)
        diff = make_diff(tree, files)
        shutil.rmtree(tree)
        return Change(name, diff, f"Change {name}\n\nWhy: it is faster.", TIME, stack.top)

    def put(self, stack: Stack, change: Change) -> str:
        """Put a change on top; returns its commit."""
        built = stack.build([change], on=stack.top)
        assert isinstance(built, str), built
        stack.adopt(built)
        return built

    def accept(self, stack: Stack, name: str, files: Mapping[str, str | bytes | None]) -> Change:
        """Make a change and put it on top."""
        change = self.change(stack, name, files)
        self.put(stack, change)
        return change

    def tree(self, stack: Stack, name: str = "tree") -> Path:
        """The tree of the top."""
        stack.materialise(stack.top, self.run / name)
        return self.run / name

    def refusal(self, stack: Stack, diff: str) -> PatchFinding:
        """Why there is no tree of a candidate."""
        found = stack.materialise_candidate(diff, self.run / "refused", RULES)
        assert isinstance(found, PatchFinding)
        assert not (self.run / "refused").exists()
        return found


def contents(folder: Path) -> dict[str, tuple[bool, bytes | str]]:
    """What is in a folder, version control apart: for each path whether it is executable, and content or link."""
    found: dict[str, tuple[bool, bytes | str]] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = (False, str(path.readlink()))
        elif path.is_file() and ".git" not in path.relative_to(folder).parts:
            found[name] = (bool(path.stat().st_mode & 0o100), path.read_bytes())
    return found


def assert_a_folder(result: Exported, reason: str) -> None:
    """The result is no branch, for this reason, but a folder with the second version of `a.py`."""
    assert result.branch is None
    assert reason in result.note
    assert result.folder is not None
    assert (result.folder / "a.py").read_text() == "2\n"


def text_at(stack: Stack, commit: str, path: str) -> str:
    return stack.git.run("show", f"{commit}:{path}").stdout.decode()
