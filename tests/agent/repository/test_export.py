"""The result reaches the user: one new branch and nothing else in a repository, or a folder and a patch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.repository.export import export
from agent.repository.stack import Change, Stack
from agent.repository.target import import_target, tree_hash
from sandbox.errors import DiskFull
from tests.agent.fixture_types import TIME, Lab
from tests.files import open_to_all
from tools.diff.patch import AppliedPatch, apply_patch, make_diff
from tools.diff.patch_rules import PatchRules
from tools.private_git import GitResult, PrivateGit

pytestmark = pytest.mark.usefixtures("home")


def stack_with(target: Path, run: Path, *edits: dict[str, str | bytes | None]) -> Stack:
    stack = Stack.create(run / "stack", import_target(target, run / "pristine"), time_unix=TIME)
    for number, edit in enumerate(edits):
        tree = run / f"tree-{number}"
        stack.materialise(stack.top, tree)
        stack.accept(Change(f"a{number}", make_diff(tree, edit), f"Change {number}\n\nWhy.", TIME + number))
        shutil.rmtree(tree)
    return stack


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_repository_gets_one_branch_on_its_head_and_nothing_else(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "pkg/b.py": "1\n"})
    status, before, tree = lab.user_git(target, "status", "--porcelain"), files_of(target / ".git"), tree_hash(target)
    stack = stack_with(target, lab.run, {"a.py": "2\n"}, {"pkg/b.py": None, "c ü.py": "x\n", "again.py": "1\n"})
    assert files_of(target / ".git") == before
    result = export(stack, "20260101-ab12", lab.run)
    assert (result.branch, result.folder) == ("ratchet/20260101-ab12", None)
    after = files_of(target / ".git")
    assert {name: fact for name, fact in after.items() if name in before} == before
    new = sorted(after.keys() - before.keys())
    assert [name for name in new if not name.startswith("objects/")] == ["refs/heads/ratchet/20260101-ab12"]
    assert len(new) == 1 + 6  # two commits, their two trees, two blobs: the third is there
    assert tree_hash(target) == tree
    assert lab.user_git(target, "status", "--porcelain") == status == ""
    assert lab.user_git(target, "log", "--format=%s", "main..ratchet/20260101-ab12") == "Change 1\nChange 0"
    assert lab.user_git(target, "merge-base", "main", result.branch or "") == lab.user_git(target, "rev-parse", "main")
    assert lab.user_git(target, "rev-parse", result.branch or "") == stack.top
    lab.user_git(target, "fsck", "--strict", "--full")
    lab.user_git(target, "checkout", "--quiet", result.branch or "")
    assert (target / "c ü.py").read_text() == "x\n"
    assert "2 commits on top of what was checked out" in result.note


def shallow(lab: Lab) -> Path:
    origin = lab.repository({"a.py": "1\n"}, name="origin")
    lab.user_git(origin, "commit", "--quiet", "--allow-empty", "--message=second")
    lab.user_git(lab.tmp_path, "clone", "--quiet", "--depth=1", f"file://{origin}", "shallow")
    return lab.tmp_path / "shallow"


def packed_and_detached(lab: Lab) -> Path:
    target = lab.repository({"a.py": "1\n"})
    lab.user_git(target, "commit", "--quiet", "--allow-empty", "--message=second")
    lab.user_git(target, "pack-refs", "--all")
    lab.user_git(target, "gc", "--quiet")
    lab.user_git(target, "checkout", "--quiet", "--detach", "HEAD~1")
    return target


def linked_worktree(lab: Lab) -> Path:
    main, linked = lab.repository({"a.py": "1\n"}), lab.tmp_path / "linked"
    lab.user_git(main, "worktree", "add", "--quiet", "-b", "side", str(linked))
    lab.user_git(linked, "commit", "--quiet", "--allow-empty", "--message=on the side")
    return linked


def without_a_commit(lab: Lab) -> Path:
    target = lab.write(lab.tmp_path / "target", {"a.py": "1\n"})
    lab.user_git(target, "init", "--quiet", "--initial-branch=main")
    return target


KINDS: dict[str, Callable[[Lab], Path]] = {
    "shallow": shallow,
    "packed, with a detached HEAD": packed_and_detached,
    "a linked worktree": linked_worktree,
    "before its first commit": without_a_commit,
    "of SHA-256": lambda lab: lab.repository({"a.py": "1\n"}, "--object-format=sha256"),
    "of an odd name": lambda lab: lab.repository({"a.py": "1\n"}, name='a:b "c" \\n\t#\nö'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_repository_of_any_kind_gets_its_branch(lab: Lab, kind: str) -> None:
    target = KINDS[kind](lab)
    stack = stack_with(target, lab.run)
    result = export(stack, "r1", lab.run)  # of what has kept nothing
    assert (result.branch, result.folder, result.patch.read_bytes()) == (None, None, b"")
    head = lab.user_git(target, "rev-parse", "--quiet", "--verify", "HEAD", check=False)
    assert (stack.facts.head or "", stack.facts.no_branch_because) == (head, "")
    stack.accept(lab.change(stack, "one", {"a.py": "2\n"}))
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    assert lab.user_git(target, "show", "ratchet/r1:a.py") == "2"
    below = "Files as found" if kind == "before its first commit" else lab.user_git(target, "log", "-1", "--format=%s")
    assert lab.user_git(target, "log", "-1", "--format=%s", "ratchet/r1^") == below
    lab.user_git(target, "fsck", "--strict")


def test_uncommitted_changes_are_below_the_changes_on_the_branch(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "b.py": "1\n"})
    (target / "b.py").write_text("mine\n")
    (target / "new.py").write_text("mine\n")
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    result = export(stack, "r1", lab.run)
    assert lab.user_git(target, "log", "--format=%s", "main..ratchet/r1") == "Change 0\nUncommitted changes as found"
    assert lab.user_git(target, "show", "ratchet/r1:new.py") == "mine"
    assert lab.user_git(target, "status", "--porcelain") == "M b.py\n?? new.py"
    assert "uncommitted changes that were found" in result.note
    lab.user_git(target, "fsck", "--strict")
    # The patch goes on top of the working tree as it was found.
    lab.user_git(target, "apply", str(result.patch))
    assert (target / "a.py").read_text() == "2\n"
    assert (target / "b.py").read_text() == "mine\n"


def test_a_plain_folder_gets_a_folder_and_a_patch_that_lead_to_the_same(lab: Lab) -> None:
    target = lab.write(
        lab.tmp_path / "target", {"a.py": "1\n", "my file.py": "é\n", "data.bin": b"\0\1", "gone.py": "x\n"}
    )
    (target / "a.py").chmod(0o755)
    edits: dict[str, str | bytes | None] = {"a.py": "2\n", "my file.py": "è\n", "gone.py": None, "new/x.py": "no end"}
    stack = stack_with(target, lab.run, edits)
    before = tree_hash(target)
    result = export(stack, "r1", lab.run)
    assert result.branch is None
    assert result.folder is not None
    assert "the target is no git repository" in result.note
    assert tree_hash(target) == before
    assert lab.contents(result.folder)["a.py"] == (True, b"2\n")
    assert lab.contents(result.folder)["data.bin"] == (False, b"\0\1")
    patched = lab.tmp_path / "patched"
    shutil.copytree(target, patched)
    subprocess.run(["patch", "--quiet", "-p1", "-i", str(result.patch)], cwd=patched, check=True)
    assert lab.contents(patched) == lab.contents(result.folder)
    ours = lab.tmp_path / "ours"
    shutil.copytree(target, ours)
    text = result.patch.read_text(encoding="utf-8", errors="surrogateescape")
    assert isinstance(apply_patch(text, ours, PatchRules()), AppliedPatch)
    assert lab.contents(ours) == lab.contents(result.folder)


def test_the_patch_can_be_mailed_into_a_repository(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    lab.user_git(lab.tmp_path, "clone", "--quiet", str(target), "clone")
    stack = stack_with(target, lab.run, {"a.py": "2\n", "w.bin": b"\0\1\2"}, {"a.py": "3\n"})
    result = export(stack, "r1", lab.run)
    lab.user_git(lab.tmp_path / "clone", "am", "--quiet", str(result.patch))
    assert lab.user_git(lab.tmp_path / "clone", "log", "--format=%s", "-2") == "Change 1\nChange 0"
    tree = lab.user_git(lab.tmp_path / "clone", "rev-parse", "HEAD^{tree}")
    assert tree == stack.git.text("rev-parse", f"{stack.top}^{{tree}}")


def test_exporting_twice_is_the_same_branch_and_a_longer_stack_another(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "b.py": "1\n"})
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    assert export(stack, "r1", lab.run).branch == export(stack, "r1", lab.run).branch == "ratchet/r1"
    first = lab.user_git(target, "rev-parse", "ratchet/r1")
    stack.accept(Change("more", make_diff(lab.run / "pristine", {"b.py": "2\n"}), "More", TIME))
    assert export(stack, "r1", lab.run).branch == "ratchet/r1-2"
    assert lab.user_git(target, "rev-parse", "ratchet/r1") == first


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
    lab.user_git(target, "branch", there)
    if packed:
        lab.user_git(target, "pack-refs", "--all")
    head = lab.user_git(target, "rev-parse", "main")
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    assert export(stack, "r1", lab.run).branch == expected
    assert lab.user_git(target, "rev-parse", there) == head
    assert lab.user_git(target, "rev-parse", expected) == stack.top
    lab.user_git(target, "fsck", "--strict")


def test_a_branch_can_be_written_where_every_ref_is_packed_and_a_killed_export_left_a_lock(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    lab.user_git(target, "pack-refs", "--all")
    lab.user_git(target, "gc", "--quiet")
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    heads = target / ".git" / "refs" / "heads" / "ratchet"
    heads.mkdir(parents=True)
    (heads / "r1.lock").touch()
    assert export(stack, "r1", lab.run).branch == "ratchet/r1-2"
    assert {path.name for path in heads.iterdir()} == {"r1.lock", "r1-2"}
    lab.user_git(target, "fsck", "--strict")


def test_a_repository_that_a_group_shares_stays_shared(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"}, "--shared=group")
    assert export(stack_with(target, lab.run, {"a.py": "2\n"}), "r1", lab.run).branch == "ratchet/r1"
    folders = [path for path in (target / ".git" / "objects").iterdir() if len(path.name) == 2]
    assert all(path.stat().st_mode & 0o2070 == 0o2070 for path in (*folders, target / ".git/refs/heads/ratchet"))


def test_what_the_user_does_to_the_repository_meanwhile_is_no_obstacle(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    (target / "a.py").write_text("mine\n")
    lab.user_git(target, "commit", "--quiet", "--all", "--message=mine")
    lab.user_git(target, "gc", "--quiet", "--prune=now")
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    assert lab.user_git(target, "show", "main:a.py") == "mine"
    assert lab.user_git(target, "show", "ratchet/r1:a.py") == "2"
    lab.user_git(target, "fsck", "--strict")


def test_a_repository_that_is_gone_or_not_to_be_written_to_gives_a_folder_and_a_reason(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    refs = target / ".git" / "refs" / "heads"
    shutil.copytree(refs, lab.tmp_path / "refs")
    (refs / "ratchet").symlink_to(lab.tmp_path)
    result = export(stack, "r1", lab.run)
    assert result.branch is None
    assert "a link in the place of the folder ratchet" in result.note
    assert not (lab.tmp_path / "r1").exists()
    assert result.folder is not None
    assert (result.folder / "a.py").read_text() == "2\n"


def as_user(user: int, work: Callable[[], None]) -> int:
    """Run `work` in a child under another user id; returns its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def give(folder: Path, user: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")
def test_root_leaves_no_files_of_its_own_in_a_repository_of_a_user(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    give(target, 65534)
    assert export(stack_with(target, lab.run, {"a.py": "2\n"}), "r1", lab.run).branch == "ratchet/r1"
    assert {path.stat().st_uid for path in (target / ".git").rglob("*")} == {65534}


def test_a_repository_that_is_read_only_gives_a_folder_and_a_reason(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    for path in (*(target / ".git").rglob("*"), target / ".git"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = files_of(target / ".git")

    def work() -> None:
        result = export(stack_with(target, lab.run, {"a.py": "2\n"}), "r1", lab.run)
        assert result.branch is None
        assert "cannot be written to" in result.note
        assert "permission" in result.note
        assert result.folder is not None
        assert (result.folder / "a.py").read_text() == "2\n"

    if os.geteuid() != 0:
        work()
    else:  # nothing is read-only for root
        open_to_all(lab.tmp_path)
        give(lab.tmp_path, 65534)
        assert as_user(65534, work) == 0
    assert files_of(target / ".git") == before


@pytest.mark.parametrize("command", ["unpack-objects", "update-ref"])
def test_an_export_onto_a_full_disk_names_no_branch_whose_objects_are_missing(
    lab: Lab, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = lab.repository({"a.py": "1\n"})
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    run_git = PrivateGit.run

    def full(git: PrivateGit, *arguments: str, **options: Any) -> GitResult:
        if arguments[0] == command:
            raise DiskFull("The disk is full.")
        return run_git(git, *arguments, **options)

    monkeypatch.setattr(PrivateGit, "run", full)
    result = export(stack, "r1", lab.run)
    assert result.branch is None
    assert "cannot be written to (The disk is full.)" in result.note
    monkeypatch.undo()
    lab.user_git(target, "fsck", "--strict")
    assert lab.user_git(target, "branch", "--list", "ratchet/*") == ""
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    lab.user_git(target, "fsck", "--strict")


def test_a_run_id_that_is_no_name_for_a_branch_is_a_fault_of_the_caller(lab: Lab) -> None:
    stack = stack_with(lab.repository({"a.py": "1\n"}), lab.run, {"a.py": "2\n"})
    for run_id in ("", "../x", "a/b", "-x", "x.lock", "a..b", "x.", "a b", "a~1", "@{"):
        with pytest.raises(ValueError, match="not a run id"):
            export(stack, run_id, lab.run)


def test_large_and_many_files_arrive_whole(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    for number in range(40):
        (target / f"f{number}.txt").write_text(f"{number}\n")
    (target / "large.bin").write_bytes(os.urandom(2 << 20))
    stack = stack_with(target, lab.run, {"a.py": "2\n"})
    assert not list((stack.git.folder / "objects" / "pack").glob("*"))
    assert export(stack, "r1", lab.run).branch == "ratchet/r1"
    lab.user_git(target, "fsck", "--strict")
    clone = PrivateGit.create(lab.run / "clone.git", objects=[target / ".git" / "objects"])
    assert clone.run("cat-file", "-s", f"{stack.top}:large.bin").stdout == b"2097152\n"
