"""The result reaches the user: one new branch and nothing else in a repository, or a folder and a patch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.repository.export import export
from agent.repository.stack import Stack
from agent.repository.target import tree_hash
from sandbox.errors import DiskFull
from tests.agent.lab import RULES, Lab, assert_a_folder, contents
from tests.files import NOBODY, as_nobody, give, write_files
from tools.diff.patch import AppliedPatch, apply_patch
from tools.private_git import GitResult, PrivateGit


def stack_with(lab: Lab, target: Path, *edits: Mapping[str, str | bytes | None]) -> Stack:
    stack = lab.new_stack(target)
    for number, edit in enumerate(edits or [{"a.py": "2\n"}]):
        lab.accept(stack, f"a{number}", edit)
    return stack


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_repository_gets_one_branch_on_its_head_and_nothing_else(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "pkg/b.py": "1\n"})
    status, before, tree = lab.git(target, "status", "--porcelain"), files_of(target / ".git"), tree_hash(target)
    stack = stack_with(lab, target, {"a.py": "2\n"}, {"pkg/b.py": None, "c ü.py": "x\n", "again.py": "1\n"})
    assert files_of(target / ".git") == before
    result = export(stack, "20260101-ab12", lab.run)
    assert (result.branch, result.folder) == ("ratchet/20260101-ab12", None)
    after = files_of(target / ".git")
    assert {name: fact for name, fact in after.items() if name in before} == before
    new = sorted(after.keys() - before.keys())
    assert [name for name in new if not name.startswith("objects/")] == ["refs/heads/ratchet/20260101-ab12"]
    assert len(new) == 1 + 6  # two commits, their two trees, two blobs: the third is there
    assert tree_hash(target) == tree
    assert lab.git(target, "status", "--porcelain") == status == ""
    assert lab.git(target, "log", "--format=%s", "main..ratchet/20260101-ab12") == "Change a1\nChange a0"
    assert lab.git(target, "merge-base", "main", result.branch or "") == lab.git(target, "rev-parse", "main")
    assert lab.git(target, "rev-parse", result.branch or "") == stack.top
    lab.git(target, "fsck", "--strict", "--full")
    lab.git(target, "checkout", "--quiet", result.branch or "")
    assert (target / "c ü.py").read_text() == "x\n"
    assert "2 commits on top of what was checked out" in result.note


ODD = 'a:b "c" \\n\t#\nö'
SECOND = "git commit -q --allow-empty -m second"
KINDS = {  # what is done in the folder `target`, and which folder is the one to use
    "shallow": (f"{SECOND}; git clone -q --depth=1 file://$PWD ../other", "other"),
    "packed": (f"{SECOND}; git pack-refs --all; git gc -q; git checkout -q --detach HEAD~1", "target"),
    "linked": (f"git worktree add -q -b side ../other; git -C ../other {SECOND.removeprefix('git ')}", "other"),
    "before its first commit": ("rm -rf .git; git init -q -b main", "target"),
    "SHA-256": ("rm -rf .git; git init -q --object-format=sha256; git add .; git commit -q -m first", "target"),
    "of an odd name": (f"cp -r . '../{ODD}'", ODD),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_repository_of_any_kind_gets_its_branch(lab: Lab, kind: str) -> None:
    script, name = KINDS[kind]
    lab.sh(lab.repository({"a.py": "1\n"}), script)
    target = lab.tmp_path / name
    stack = lab.new_stack(target)
    result = export(stack, "r1", lab.run)  # of what has kept nothing
    assert (result.branch, result.folder, result.patch.read_bytes()) == (None, None, b"")
    head = lab.git(target, "rev-parse", "--quiet", "--verify", "HEAD", check=False)
    assert (stack.facts.head or "", stack.facts.no_branch_because) == (head, "")
    lab.accept(stack, "one", {"a.py": "2\n"})
    for _ in range(2):
        assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    lab.accept(stack, "two", {"a.py": "3\n"})
    assert export(stack, "r1", lab.run).branch == "ratchet/r1-2"
    assert lab.git(target, "show", "ratchet/r1:a.py") == "2"
    below = "Files as found" if kind == "before its first commit" else lab.git(target, "log", "-1", "--format=%s")
    assert lab.git(target, "log", "-1", "--format=%s", "ratchet/r1^") == below
    lab.git(target, "fsck", "--strict")


def test_uncommitted_changes_are_below_the_changes_on_the_branch(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "b.py": "1\n"})
    write_files(target, {"b.py": "mine\n", "new.py": "mine\n"})
    stack = stack_with(lab, target)
    result = export(stack, "r1", lab.run)
    assert lab.git(target, "log", "--format=%s", "main..ratchet/r1") == "Change a0\nUncommitted changes as found"
    assert lab.git(target, "show", "ratchet/r1:new.py") == "mine"
    assert lab.git(target, "status", "--porcelain") == "M b.py\n?? new.py"
    assert "uncommitted changes that were found" in result.note
    lab.git(target, "fsck", "--strict")
    # The patch goes on top of the working tree as it was found.
    lab.git(target, "apply", str(result.patch))
    assert (target / "a.py").read_text() == "2\n"
    assert (target / "b.py").read_text() == "mine\n"


def test_a_plain_folder_gets_a_folder_and_a_patch_that_lead_to_the_same(lab: Lab) -> None:
    files = {"a.py": "1\n", "my file.py": "é\n", "data.bin": b"\0\1", "gone.py": "x\n"}
    target = write_files(lab.tmp_path / "target", files)
    (target / "a.py").chmod(0o755)
    edits = {"a.py": "2\n", "my file.py": "è\n", "gone.py": None, "new/x.py": "no end"}
    stack = stack_with(lab, target, edits)
    before = tree_hash(target)
    result = export(stack, "r1", lab.run)
    assert_a_folder(result, "the target is no git repository")
    assert result.folder is not None
    assert tree_hash(target) == before
    expected = contents(result.folder)
    assert (expected["a.py"], expected["data.bin"]) == ((True, b"2\n"), (False, b"\0\1"))
    patched, ours = lab.tmp_path / "patched", lab.tmp_path / "ours"
    for tree in (patched, ours):
        shutil.copytree(target, tree)
    subprocess.run(["patch", "--quiet", "-p1", "-i", str(result.patch)], cwd=patched, check=True)
    text = result.patch.read_text(encoding="utf-8", errors="surrogateescape")
    assert isinstance(apply_patch(text, ours, RULES), AppliedPatch)
    assert contents(patched) == contents(ours) == expected


def test_the_patch_can_be_mailed_into_a_repository(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    lab.git(lab.tmp_path, "clone", "--quiet", str(target), "clone")
    stack = stack_with(lab, target, {"a.py": "2\n", "w.bin": b"\0\1\2"}, {"a.py": "3\n"})
    result = export(stack, "r1", lab.run)
    lab.git(lab.tmp_path / "clone", "am", "--quiet", str(result.patch))
    assert lab.git(lab.tmp_path / "clone", "log", "--format=%s", "-2") == "Change a1\nChange a0"
    tree = lab.git(lab.tmp_path / "clone", "rev-parse", "HEAD^{tree}")
    assert tree == stack.git.text("rev-parse", f"{stack.top}^{{tree}}")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("ratchet", "ratchet-r1"),
        ("ratchet/r1", "ratchet/r1-2"),
        ("ratchet/r1/deeper", "ratchet/r1-2"),
        ("ratchet/other", "ratchet/r1"),
    ],
)
def test_a_branch_of_the_user_is_never_overwritten_and_another_name_is_found(
    lab: Lab, there: str, expected: str, packed: bool
) -> None:
    target = lab.repository({"a.py": "1\n"})
    lab.git(target, "branch", there)
    if packed:
        lab.git(target, "pack-refs", "--all")
    head = lab.git(target, "rev-parse", "main")
    stack = stack_with(lab, target)
    assert export(stack, "r1", lab.run).branch == expected
    assert lab.git(target, "rev-parse", there) == head
    assert lab.git(target, "rev-parse", expected) == stack.top
    lab.git(target, "fsck", "--strict")


def test_a_lock_that_a_killed_export_left_stays_and_another_name_is_found(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    heads = write_files(target / ".git" / "refs" / "heads" / "ratchet", {"r1.lock": ""})
    assert export(stack_with(lab, target), "r1", lab.run).branch == "ratchet/r1-2"
    assert {path.name for path in heads.iterdir()} == {"r1.lock", "r1-2"}


def test_a_repository_that_a_group_shares_stays_shared(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"}, "--shared=group")
    assert export(stack_with(lab, target), "r1", lab.run).branch == "ratchet/r1"
    folders = [path for path in (target / ".git" / "objects").iterdir() if len(path.name) == 2]
    assert all(path.stat().st_mode & 0o2070 == 0o2070 for path in (*folders, target / ".git/refs/heads/ratchet"))


def test_what_the_user_does_to_the_repository_meanwhile_is_no_obstacle(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    stack = stack_with(lab, target)
    lab.sh(target, "echo mine > a.py; git commit -q -a -m mine; git gc -q --prune=now")
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    assert lab.git(target, "show", "main:a.py") == "mine"
    assert lab.git(target, "show", "ratchet/r1:a.py") == "2"
    lab.git(target, "fsck", "--strict")


def test_a_branch_is_not_written_through_a_link(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    stack = stack_with(lab, target)
    refs = target / ".git" / "refs" / "heads"
    shutil.copytree(refs, lab.tmp_path / "refs")
    (refs / "ratchet").symlink_to(lab.tmp_path)
    assert_a_folder(export(stack, "r1", lab.run), "a link in the place of the folder ratchet")
    assert not (lab.tmp_path / "r1").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")
def test_root_leaves_no_files_of_its_own_in_a_repository_of_a_user(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    give(target)
    assert export(stack_with(lab, target), "r1", lab.run).branch == "ratchet/r1"
    assert {path.stat().st_uid for path in (target / ".git").rglob("*")} == {NOBODY}


def test_a_repository_that_is_read_only_gives_a_folder_and_a_reason(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    for path in (*(target / ".git").rglob("*"), target / ".git"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = files_of(target / ".git")

    with as_nobody(lab.tmp_path):
        result = export(stack_with(lab, target), "r1", lab.run)
    assert_a_folder(result, "cannot be written to")
    assert "permission" in result.note
    assert files_of(target / ".git") == before


@pytest.mark.parametrize("command", ["unpack-objects", "update-ref"])
def test_an_export_onto_a_full_disk_names_no_branch_whose_objects_are_missing(
    lab: Lab, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = lab.repository({"a.py": "1\n"})
    stack = stack_with(lab, target)
    run_git = PrivateGit.run

    def full(git: PrivateGit, *arguments: str, **options: Any) -> GitResult:
        if arguments[0] == command:
            raise DiskFull("The disk is full.")
        return run_git(git, *arguments, **options)

    monkeypatch.setattr(PrivateGit, "run", full)
    assert_a_folder(export(stack, "r1", lab.run), "cannot be written to (The disk is full.)")
    monkeypatch.undo()
    lab.git(target, "fsck", "--strict")
    assert lab.git(target, "branch", "--list", "ratchet/*") == ""
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    lab.git(target, "fsck", "--strict")


def test_large_and_many_files_arrive_whole(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    write_files(target, {f"f{number}.txt": f"{number}\n" for number in range(40)} | {"large.bin": os.urandom(2 << 20)})
    stack = stack_with(lab, target)
    assert not list((stack.git.folder / "objects" / "pack").glob("*"))
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    lab.git(target, "fsck", "--strict")
    assert lab.git(target, "cat-file", "-s", "ratchet/r1:large.bin") == "2097152"
