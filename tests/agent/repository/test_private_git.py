"""Whatever a repository, its configuration or the environment wants to have run, git of ours does not run it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.repository.export import export
from agent.repository.stack import Stack
from agent.repository.target import tree_hash
from tests.agent.fixture_types import Lab, MakeChange, NewStack
from tests.agent.hostile import HOOKS, set_traps
from tools.private_git import PrivateGit

pytestmark = pytest.mark.usefixtures("home")


def everything_we_do(target: Path, run: Path, new_stack: NewStack, change: MakeChange) -> Stack:
    stack = new_stack(target, run)
    stack.accept(change(stack, "one", {"a.py": "2\n", "new.txt": "x\n"}))
    stack.accept(change(stack, "two", {"a.py": "3\n", "c.cfg": "x\n"}))
    assert isinstance(stack.build([change(stack, "three", {"b.txt": "2\n"}, on=stack.top)]), str)
    assert stack.diff(stack.top)
    assert export(stack, "r1", run).branch == "ratchet/r1"
    return stack


def test_a_hostile_repository_runs_nothing_and_its_traps_do_work(lab: Lab) -> None:
    files = {"a.py": "1\n", "b.txt": "1\n", "c.cfg": "1\n", ".gitattributes": "*.py filter=evil diff=evil merge=evil\n"}
    target = lab.repository(files)
    marks = set_traps(target, lab.tmp_path / "traps")
    for name in ("a.py", "b.txt", "c.cfg"):  # as new: git has to look into them, which is what filters are for
        os.utime(target / name)
    (target / "b.txt").write_text("dirty\n")
    (target / "untracked.py").write_text("new\n")
    before = tree_hash(target)
    control = lab.tmp_path / "control"
    shutil.copytree(target, control, symlinks=True)

    stack = everything_we_do(target, lab.run, lab.new_stack, lab.change)

    assert list(marks.iterdir()) == []
    assert tree_hash(target) == before
    listed = PrivateGit(target / ".git")  # our settings, their branch: a look at the result that runs nothing either
    assert listed.run("show", "ratchet/r1:a.py").stdout == b"3\n"
    assert stack.facts.modified == ("b.txt",)
    assert list(marks.iterdir()) == []

    (control / "c.cfg").write_text("changed\n")
    commands = "status; diff -- c.cfg; add c.cfg; add --all; commit -m x; trap; checkout HEAD -- ."
    for command in f"{commands}; update-ref refs/heads/x HEAD".split(";"):
        lab.user_git(control, *command.split(), check=False)
        (control / "a.py").unlink(missing_ok=True)
    fired = {mark.name for mark in marks.iterdir()}
    hooks = {"hook-post-index-change", "hook-reference-transaction", "hook-pre-commit"}
    assert fired >= {"fsmonitor", "clean", "process", "included", "external", "alias", "gpg", "smudge"} | hooks


def test_a_hook_that_got_into_our_own_repository_is_not_run(lab: Lab) -> None:
    stack = lab.stack({"a.py": "1\n"})
    hooks = stack.git.folder / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in HOOKS.split():
        (hooks / name).write_text(f"#!/bin/sh\n: > {lab.tmp_path}/mark\n")
        (hooks / name).chmod(0o755)
    stack.accept(lab.change(stack, "one", {"a.py": "2\n"}))
    assert not (lab.tmp_path / "mark").exists()
    control = {"PATH": os.environ["PATH"], "GIT_DIR": str(stack.git.folder)}
    subprocess.run(["git", "update-ref", "refs/heads/x", stack.top], env=control, check=True)
    assert (lab.tmp_path / "mark").exists()


def test_a_configuration_that_points_elsewhere_is_not_followed(lab: Lab) -> None:
    elsewhere = lab.write(lab.tmp_path / "elsewhere", {"secret.txt": "theirs\n"})
    target = lab.repository({"a.py": "1\n", "b.txt": "1\n"})
    lab.user_git(target, "config", "core.worktree", str(elsewhere))
    stack = everything_we_do(target, lab.run, lab.new_stack, lab.change)
    assert "secret.txt" not in stack.git.run("ls-tree", "-r", "--name-only", stack.top).stdout.decode()
    assert [path.name for path in elsewhere.iterdir()] == ["secret.txt"]


def test_the_environment_of_the_caller_has_no_say(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    target = lab.repository({"a.py": "1\n", "b.txt": "1\n"})
    mark = lab.tmp_path / "mark"
    script = lab.tmp_path / "script"
    script.write_text(f"#!/bin/sh\n: > {mark}\n")
    script.chmod(0o755)
    hostile_environment = {
        "GIT_DIR": str(target / ".git"),
        "GIT_WORK_TREE": "/",
        "GIT_INDEX_FILE": str(lab.tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(lab.tmp_path / "objects"),
        "GIT_EXTERNAL_DIFF": str(script),
        "GIT_NAMESPACE": "x",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(script),
        "GIT_AUTHOR_NAME": "Mallory",
        "GIT_PAGER": str(script),
    }
    for name, value in hostile_environment.items():
        monkeypatch.setenv(name, value)
    stack = everything_we_do(target, lab.run, lab.new_stack, lab.change)
    assert stack.git.text("log", "-1", "--format=%an") == "Ratchet"
    assert not mark.exists()
    assert not (lab.tmp_path / "objects").exists()


def test_a_tree_with_more_files_than_can_be_is_not_unfolded(lab: Lab) -> None:
    """Ten trees of ten names for each other hold ten billion files, in eleven objects."""
    target = lab.repository({"a.py": "1\n"})

    def make_tree(lines: str) -> str:
        command = ["git", "--git-dir", str(target / ".git"), "mktree"]
        return subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.strip()

    tree = make_tree(f"100644 blob {lab.user_git(target, 'rev-parse', 'HEAD:a.py')}\ta.py\n")
    for _ in range(10):
        tree = make_tree("".join(f"040000 tree {tree}\t{name}\n" for name in "abcdefghij"))
    commit = lab.user_git(target, "commit-tree", tree, "-m", "bomb")
    (target / ".git" / "refs" / "heads" / "main").write_text(f"{commit}\n")
    stack = lab.new_stack(target, lab.run)
    assert "cannot be read" in stack.facts.no_branch_because
