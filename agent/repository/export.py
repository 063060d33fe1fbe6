"""Hand the result to the user: a branch in the target's repository, or a folder and a patch.

Never touches the target's files. What cannot be a branch becomes a folder in the run's own folder, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agent.repository.stack import Stack
from agent.repository.target_repository import Unusable, read_repository
from tools.tree_removal import remove_tree

PATCH = "ratchet.patch"
RESULT = "result"


@dataclass(frozen=True)
class Exported:
    """Where the result is. `note` is one sentence for a person."""

    branch: str | None
    folder: Path | None
    patch: Path
    note: str


def export(stack: Stack, run_id: str, into: Path) -> Exported:
    """Write the stack's changes where the user finds them; `into` is the run's folder. Doing so twice is harmless.

    The patch is always written, for `git am` or `patch -p1`; empty when nothing was kept.
    Raises: GitError, OSError.
    """
    top, patch = stack.top, write_patch(stack, into)
    if top == stack.base:
        return Exported(None, None, patch, "Nothing was kept, so there is nothing to hand over.")
    try:
        branch = _write_branch(stack, top, run_id)
    except Unusable as reason:
        folder = _write_folder(stack, top, into)
        note = f"No branch was written, because {reason}; the changed files are in {folder}, the patch is {patch}."
        return Exported(None, folder, patch, note)
    changes = len(stack.commits())
    below = "one with the uncommitted changes that were found" if stack.facts.uncommitted else "what was checked out"
    note = f"The branch {branch} has {changes} commit{'s' if changes != 1 else ''} on top of {below}."
    return Exported(branch, None, patch, note)


def _write_branch(stack: Stack, top: str, run_id: str) -> str:
    if stack.facts.no_branch_because:
        raise Unusable(stack.facts.no_branch_because)
    repository = read_repository(Path(stack.facts.target))
    if repository is None:
        raise Unusable("its .git is gone since the run started")
    if repository.object_format != stack.git.text("rev-parse", "--show-object-format"):
        raise Unusable("its repository has become one of another format since the run started")
    return replace(repository, head=stack.facts.head).write_branch(stack.git, top, run_id)


def write_patch(stack: Stack, into: Path) -> Path:
    """All changes of the stack as one patch; empty where there are none. Raises: GitError, OSError."""
    into.mkdir(parents=True, exist_ok=True)
    options = ("--stdout", "--binary", "--full-index", "--no-renames", "--no-signature")
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    said = stack.git.run("format-patch", *options, *prefixes, f"{stack.base}..{stack.top}").stdout
    patch, making = into / PATCH, into / f".{PATCH}.making"
    making.write_bytes(said)
    making.replace(patch)
    return patch


def _write_folder(stack: Stack, top: str, into: Path) -> Path:
    folder, making = into / RESULT, into / f".{RESULT}.making"
    remove_tree(making)
    stack.materialise(top, making)
    remove_tree(folder)
    making.rename(folder)
    return folder
