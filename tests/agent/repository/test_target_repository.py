"""A `.git` that cannot be used, or that leads elsewhere, is left alone, and the reason is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.repository.export import export
from tests.agent.lab import Lab, assert_a_folder

EXTENSION = r"sed -i 's/\[core\]/[extensions]\n\t{} = {}\n[core]/' .git/config"
OBJECT = "object=$(git rev-parse HEAD | sed 's|..|.git/objects/&/|'); rm -f $object"
UNUSABLE = {  # what is done to it, and the reason that is given
    "branches kept as reftable": (
        f"{EXTENSION.format('refStorage', 'reftable')}; sed -i s/'version = 0'/'version = 1'/ .git/config;"
        "echo 'ref: refs/heads/.invalid' > .git/HEAD; mkdir .git/reftable",
        "reftable",
    ),
    "a pipe where a file should be": ("mkfifo .git/packed-refs; rm .git/refs/heads/main", "a pipe"),
    "a pipe where an object should be": (f"{OBJECT}; mkfifo $object", "a pipe or a device among its objects"),
    "a pipe where other objects are named": (
        "mkfifo .git/objects/info/alternates",
        "a pipe or a device among its objects",
    ),
    "objects gone": ("rm -rf .git/objects; mkdir .git/objects", "cannot be read"),
    "no object folder": ("rm -rf .git/objects; touch .git/objects", "no plain folder `objects`"),
    "refs behind a link": (
        "mv .git/refs/heads ../heads; ln -s $PWD/../heads .git/refs/heads",
        "no plain folder `refs/heads`",
    ),
    "a pointer to another's repository": (
        "mv .git ../theirs.git; echo gitdir: $PWD/../theirs.git > .git",
        "does not say that it belongs",
    ),
    "a pointer to another's worktree": (
        "mv .git ../theirs.git; mkdir evil; echo $PWD/../theirs.git > evil/commondir; echo $PWD/.git > evil/gitdir;"
        "echo ref: refs/heads/main > evil/HEAD; echo gitdir: evil > .git",
        "not a worktree of a repository that knows it",
    ),
    "another's common folder": (
        "cp -r .git ../theirs.git; echo $PWD/../theirs.git > .git/commondir",
        "refers to another repository",
    ),
    "a link": ("mv .git ../theirs.git; ln -s $PWD/../theirs.git .git", "symbolic link"),
    "a HEAD that leads out": ("echo ref: refs/heads/../../../secret > .git/HEAD", "HEAD names no branch"),
    "a HEAD of nothing": ("echo nonsense > .git/HEAD", "HEAD names no commit"),
    "no HEAD": ("rm .git/HEAD", "no complete repository"),
    "a pointer to nowhere": ("rm -rf .git; echo gitdir: /no/where > .git", "no folder"),
    "an unknown format": ("sed -i s/'version = 0'/'version = 7'/ .git/config", "unknown format version 7"),
    "an unknown extension": (EXTENSION.format("magic", "1"), "magic"),
    "no readable configuration": (r"sed -i 's/\[core\]/[[core/' .git/config", "config cannot be read"),
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_a_repository_that_cannot_be_used_is_left_alone_and_named(lab: Lab, how: str) -> None:
    script, reason = UNUSABLE[how]
    target = lab.repository({"a.py": "1\n"})
    lab.sh(target, script)
    before = everything_below(target.parent, apart=lab.run)
    stack = lab.new_stack(target)
    assert reason in stack.facts.no_branch_because
    lab.accept(stack, "one", {"a.py": "2\n"})
    assert_a_folder(export(stack, "r1", lab.run), reason)
    assert everything_below(target.parent, apart=lab.run) == before


def everything_below(folder: Path, *, apart: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if not path.is_relative_to(apart))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in files}
