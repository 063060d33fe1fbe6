"""A `.git` that cannot be used, or that leads elsewhere, is left alone, and the reason is said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.repository.export import export
from tests.agent.fixture_types import Lab

pytestmark = pytest.mark.usefixtures("home")


def reftable(target: Path) -> None:
    with (target / ".git" / "config").open("a") as config:
        config.write("[extensions]\n\trefStorage = reftable\n")
    (target / ".git" / "config").write_text(
        (target / ".git" / "config").read_text().replace("repositoryformatversion = 0", "repositoryformatversion = 1")
    )
    (target / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    (target / ".git" / "reftable").mkdir()


def pipe_for_a_file(target: Path) -> None:
    (target / ".git" / "packed-refs").unlink(missing_ok=True)
    os.mkfifo(target / ".git" / "packed-refs")
    (target / ".git" / "refs" / "heads" / "main").unlink()


def pipe_for_an_object(target: Path) -> None:
    head = (target / ".git" / "refs" / "heads" / "main").read_text().strip()
    place = target / ".git" / "objects" / head[:2] / head[2:]
    place.unlink()
    os.mkfifo(place)


def pipe_for_a_list_of_objects(target: Path) -> None:
    os.mkfifo(target / ".git" / "objects" / "info" / "alternates")


def objects_gone(target: Path) -> None:
    shutil.rmtree(target / ".git" / "objects")
    (target / ".git" / "objects").mkdir()


def a_file_for_a_folder(target: Path) -> None:
    shutil.rmtree(target / ".git" / "objects")
    (target / ".git" / "objects").write_text("")


def a_link_for_a_folder(target: Path) -> None:
    (target / ".git" / "refs" / "heads").rename(target.parent / "heads")
    (target / ".git" / "refs" / "heads").symlink_to(target.parent / "heads")


def the_repository_of_somebody_else(target: Path) -> None:
    (target / ".git").rename(target.parent / "theirs.git")
    (target / ".git").write_text(f"gitdir: {target.parent / 'theirs.git'}\n")


def the_worktree_of_somebody_else(target: Path) -> None:
    (target / ".git").rename(target.parent / "theirs.git")
    mine = target / "evil"
    mine.mkdir()
    (mine / "commondir").write_text(f"{target.parent / 'theirs.git'}\n")
    (mine / "gitdir").write_text(f"{target / '.git'}\n")
    (mine / "HEAD").write_text("ref: refs/heads/main\n")
    (target / ".git").write_text("gitdir: evil\n")


def a_common_folder_of_somebody_else(target: Path) -> None:
    shutil.copytree(target / ".git", target.parent / "theirs.git")
    (target / ".git" / "commondir").write_text(f"{target.parent / 'theirs.git'}\n")


def a_link(target: Path) -> None:
    (target / ".git").rename(target.parent / "theirs.git")
    (target / ".git").symlink_to(target.parent / "theirs.git")


def head_out_of_the_repository(target: Path) -> None:
    (target / ".git" / "HEAD").write_text("ref: refs/heads/../../../secret\n")


def rewrite_config(target: Path, old: str, new: str) -> None:
    config = target / ".git" / "config"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "branches kept as reftable": (reftable, "reftable"),
    "a pipe where a file should be": (pipe_for_a_file, "a pipe"),
    "a pipe where an object should be": (pipe_for_an_object, "a pipe or a device among its objects"),
    "a pipe where other objects are named": (pipe_for_a_list_of_objects, "a pipe or a device among its objects"),
    "objects gone": (objects_gone, "cannot be read"),
    "no object folder": (a_file_for_a_folder, "no plain folder `objects`"),
    "refs behind a link": (a_link_for_a_folder, "no plain folder `refs/heads`"),
    "a pointer to another's repository": (the_repository_of_somebody_else, "does not say that it belongs"),
    "a pointer to another's worktree": (the_worktree_of_somebody_else, "not a worktree of a repository that knows it"),
    "another's common folder": (a_common_folder_of_somebody_else, "refers to another repository"),
    "a link": (a_link, "symbolic link"),
    "a HEAD that leads out": (head_out_of_the_repository, "HEAD names no branch"),
    "a HEAD of nothing": (lambda t: (t / ".git" / "HEAD").write_text("nonsense\n"), "HEAD names no commit"),
    "no HEAD": (lambda t: (t / ".git" / "HEAD").unlink(), "no complete repository"),
    "a pointer to nowhere": (
        lambda t: (shutil.rmtree(t / ".git"), (t / ".git").write_text("gitdir: /no/where\n")),
        "no folder",
    ),
    "an unknown format": (lambda t: rewrite_config(t, "version = 0", "version = 7"), "unknown format version 7"),
    "an unknown extension": (lambda t: rewrite_config(t, "[core]", "[extensions]\n\tmagic = 1\n[core]"), "magic"),
    "no readable configuration": (lambda t: rewrite_config(t, "[core]", "[[core"), "config cannot be read"),
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_a_repository_that_cannot_be_used_is_left_alone_and_named(lab: Lab, how: str) -> None:
    target = lab.repository({"a.py": "1\n"})
    spoil, reason = UNUSABLE[how]
    spoil(target)
    before = everything_below(target.parent, apart=lab.run)
    stack = lab.new_stack(target, lab.run)
    assert reason in stack.facts.no_branch_because
    stack.accept(lab.change(stack, "one", {"a.py": "2\n"}))
    result = export(stack, "r1", lab.run)
    assert result.branch is None
    assert result.folder is not None
    assert (result.folder / "a.py").read_text() == "2\n"
    assert reason in result.note
    assert everything_below(target.parent, apart=lab.run) == before


def everything_below(folder: Path, *, apart: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if not path.is_relative_to(apart))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in files}
