"""Make the folder of a stack: the private repository, its base, and `stack.json`.

Never fails because of what the target's repository is like: if it cannot be used, the stack stands on the files alone,
and why is written down, because then the result is a folder and a patch.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agent.records.atomic_file import write_atomically
from agent.repository.base_commit import Base, make_base
from agent.repository.target_listing import ImportedTarget
from agent.repository.target_repository import TargetRepository, Unusable, read_repository
from tools.private_git import GitError, PrivateGit
from tools.tree_removal import remove_tree

TOP = "refs/heads/stack"
REPOSITORY = "repository.git"
FACTS = "stack.json"


class StackFile(BaseModel):
    """`stack.json`: what does not change once the stack is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: int = 1
    target: str
    pristine: str
    base: str
    """The commit that the stack stands on."""
    head: str | None
    """HEAD of the target when it was imported; None without a repository, or before its first commit."""
    no_branch_because: str
    """Why the result cannot be a branch; empty when it can."""
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    crlf: tuple[str, ...] = ()
    """Files that git holds with \\n and the working tree with \\r\\n."""
    unchangeable: dict[str, str] = {}
    """Files that no commit of ours can change, and why."""
    too_large: tuple[str, ...] = ()
    """Untracked files that are not in the base for their size."""

    @property
    def uncommitted(self) -> int:
        """How many files differed from the target's HEAD; they are part of the base. 0 without a repository."""
        return len(self.modified) + len(self.deleted) + len(self.untracked) if self.head else 0


def make_stack_folder(folder: Path, imported: ImportedTarget, time_unix: int) -> StackFile:
    """The folder appears whole or not at all. Raises: GitError, DiskFull, OSError."""
    making = folder.with_name(f".{folder.name}.making")
    repository, because = _find_repository(imported.root)
    try:
        git, base = _write_base(making, imported, repository, time_unix)
    except GitError as error:
        if repository is None:
            raise
        repository, because = None, f"its repository cannot be read ({error.message})"
        git, base = _write_base(making, imported, None, time_unix)
    git.run("update-ref", TOP, base.commit)
    facts = StackFile(
        target=str(imported.root),
        pristine=str(imported.tree),
        head=repository.head if repository else None,
        no_branch_because=because,
        base=base.commit,
        **{name: value for name, value in asdict(base).items() if name != "commit"},
    )
    write_atomically(making / FACTS, facts.model_dump_json(indent=1) + "\n")
    making.rename(folder)
    return facts


def _write_base(
    folder: Path, imported: ImportedTarget, repository: TargetRepository | None, time_unix: int
) -> tuple[PrivateGit, Base]:
    remove_tree(folder)
    objects = [repository.objects] if repository else []
    object_format = repository.object_format if repository else "sha1"
    git = PrivateGit.create(folder / REPOSITORY, object_format=object_format, objects=objects)
    if repository and repository.shallow:
        (git.folder / "shallow").write_bytes(repository.shallow)
    return git, make_base(git, imported, repository, time_unix)


def _find_repository(target: Path) -> tuple[TargetRepository | None, str]:
    try:
        repository = read_repository(target)
    except Unusable as reason:
        return None, str(reason)
    if repository is not None:
        return repository, ""
    for parent in target.parents:
        if os.access(parent / ".git", os.F_OK):
            return None, f"the target is only a folder of the repository {parent}; name that as --target to get one"
    return None, "the target is no git repository"
