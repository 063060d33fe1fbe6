"""Whatever a repository, its configuration or the environment wants to have run, git of ours does not run it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent.repository.export import export
from agent.repository.stack import Stack
from agent.repository.target import tree_hash
from tests.agent.hostile import HOOKS, set_traps
from tests.agent.lab import Lab
from tests.files import write_files
from tools.private_git import PrivateGit


def everything_we_do(target: Path, lab: Lab) -> Stack:
    stack = lab.new_stack(target)
    lab.accept(stack, "one", {"a.py": "2\n", "new.txt": "x\n"})
    lab.accept(stack, "two", {"a.py": "3\n", "c.cfg": "x\n"})
    assert isinstance(stack.build([lab.change(stack, "three", {"b.txt": "2\n"})]), str)
    assert stack.diff(stack.top)
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    return stack


def test_a_hostile_repository_runs_nothing_and_its_traps_do_work(lab: Lab) -> None:
    files = {"a.py": "1\n", "b.txt": "1\n", "c.cfg": "1\n", ".gitattributes": "*.py filter=evil diff=evil merge=evil\n"}
    target = lab.repository(files)
    marks = set_traps(target, lab.tmp_path / "traps")
    for name in ("a.py", "b.txt", "c.cfg"):  # as new: git has to look into them, which is what filters are for
        os.utime(target / name)
    write_files(target, {"b.txt": "dirty\n", "untracked.py": "new\n"})
    before = tree_hash(target)
    control = lab.tmp_path / "control"
    shutil.copytree(target, control, symlinks=True)

    stack = everything_we_do(target, lab)

    assert list(marks.iterdir()) == []
    assert tree_hash(target) == before
    listed = PrivateGit(target / ".git")  # our settings, their branch: a look at the result that runs nothing either
    assert listed.run("show", "ratchet/r1:a.py").stdout == b"3\n"
    assert stack.facts.modified == ("b.txt",)
    assert list(marks.iterdir()) == []

    (control / "c.cfg").write_text("changed\n")
    commands = "status; diff -- c.cfg; add c.cfg; add --all; commit -m x; trap; checkout HEAD -- ."
    for command in f"{commands}; update-ref refs/heads/x HEAD".split(";"):
        lab.git(control, *command.split(), check=False)
        (control / "a.py").unlink(missing_ok=True)
    fired = {mark.name for mark in marks.iterdir()}
    hooks = {"hook-post-index-change", "hook-reference-transaction", "hook-pre-commit"}
    assert fired >= {"fsmonitor", "clean", "process", "included", "external", "alias", "gpg", "smudge"} | hooks


def test_a_hook_that_got_into_our_own_repository_is_not_run(lab: Lab) -> None:
    stack = lab.stack({"a.py": "1\n"})
    hooks = write_files(
        stack.git.folder / "hooks", dict.fromkeys(HOOKS.split(), f"#!/bin/sh\n: > {lab.tmp_path}/mark\n")
    )
    for hook in hooks.iterdir():
        hook.chmod(0o755)
    lab.accept(stack, "one", {"a.py": "2\n"})
    assert not (lab.tmp_path / "mark").exists()
    lab.sh(stack.git.folder, "git update-ref refs/heads/x stack")
    assert (lab.tmp_path / "mark").exists()


def test_a_configuration_that_points_elsewhere_is_not_followed(lab: Lab) -> None:
    elsewhere = write_files(lab.tmp_path / "elsewhere", {"secret.txt": "theirs\n"})
    target = lab.repository({"a.py": "1\n", "b.txt": "1\n"})
    lab.git(target, "config", "core.worktree", str(elsewhere))
    stack = everything_we_do(target, lab)
    assert "secret.txt" not in stack.git.run("ls-tree", "-r", "--name-only", stack.top).stdout.decode()
    assert [path.name for path in elsewhere.iterdir()] == ["secret.txt"]


def test_the_environment_of_the_caller_has_no_say(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    target = lab.repository({"a.py": "1\n", "b.txt": "1\n"})
    mark, script = lab.tmp_path / "mark", lab.tmp_path / "script"
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
    stack = everything_we_do(target, lab)
    assert stack.git.text("log", "-1", "--format=%an") == "Ratchet"
    assert not mark.exists()
    assert not (lab.tmp_path / "objects").exists()


def test_a_tree_with_more_files_than_can_be_is_not_unfolded(lab: Lab) -> None:
    """Ten trees of ten names for each other hold ten billion files, in eleven objects."""
    target = lab.repository({"a.py": "1\n"})
    ten = r"""for name in a b c d e f g h i j; do printf "040000 tree $tree\t$name\n"; done | git mktree"""
    trees = f"tree=$(git rev-parse HEAD^{{tree}}); for _ in 0 1 2 3 4 5 6 7 8 9; do tree=$({ten}); done"
    lab.sh(target, f"{trees}; git commit-tree $tree -m bomb > .git/refs/heads/main")
    assert "said too much" in lab.new_stack(target).facts.no_branch_because
