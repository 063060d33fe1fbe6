"""The stack: accepted changes as commits of a private repository, and the trees of these commits.

A tree is the pristine tree with the files that differ from the base, so it is complete (data that git ignores is in
it) and byte for byte what was imported. Nothing of the target's is run or written to, and nothing is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from pydantic import ValidationError

from agent.errors import AgentError
from agent.repository.base import FACTS, REPOSITORY, TOP, StackFile, make_stack_folder
from agent.repository.objects import Entry, list_tree, merge_trees, write_object, write_tree
from agent.repository.target import ImportedTarget
from agent.repository.tree_copy import copy_tree
from tools.diff.patch import (
    AppliedPatch,
    FileState,
    OutOfReach,
    PatchFinding,
    Reader,
    diff_files,
    plan_patch,
    tree_reader,
    write_files,
)
from tools.diff.patch_rules import PatchRules
from tools.private_git import GitError, PrivateGit
from tools.rewrite.runtime_files import PACKAGE, needed

TRAILER = "Ratchet-Attempt"
_ATTEMPT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# What was once accepted is not judged again: limits are for candidates, and may have changed since.
_ACCEPTED = PatchRules(max_diff_bytes=1 << 30, max_files=100_000, max_file_bytes=1 << 30, max_binary_bytes=1 << 30)


class StackError(AgentError):
    """The stack cannot be read, or a kept change does not fit on it."""

    exit_status = 26


@dataclass(frozen=True)
class Change:
    """What becomes one commit: a diff against `made_on`, a commit of this stack (None: the one it is put on)."""

    attempt_id: str
    diff: str
    message: str
    time_unix: int
    made_on: str | None = None


@dataclass(frozen=True)
class StackCommit:
    commit: str
    attempt_id: str
    title: str


@dataclass(frozen=True)
class Conflict:
    """A change that cannot be carried over to where it was wanted: data, not an error."""

    attempt_id: str
    reason: str


class Stack:
    """The stack of one run. Only one process changes it: the one that holds the run's lock."""

    def __init__(self, folder: Path, facts: StackFile) -> None:
        self.folder = folder
        self.facts = facts
        self.git = PrivateGit(folder / REPOSITORY)
        self.pristine = Path(facts.pristine)

    @classmethod
    def create(cls, folder: Path, imported: ImportedTarget, *, time_unix: int) -> Stack:
        """The empty stack of a new run, on the target's HEAD where it has a repository that can be used.

        The folder appears whole or not at all. Raises: GitError, DiskFull, OSError.
        """
        folder = folder.absolute()
        return cls(folder, make_stack_folder(folder, imported, time_unix))

    @classmethod
    def open(cls, folder: Path) -> Stack:
        """The stack in `folder`, as it was left; for the process that holds the run. Raises: StackError, OSError."""
        folder = folder.absolute()
        try:
            facts = StackFile.model_validate_json((folder / FACTS).read_bytes())
        except (OSError, ValidationError) as error:
            first = str(error).splitlines()[0]
            raise StackError(f"{folder / FACTS} cannot be read: {first}", hint="Start a new run.") from error
        pristine = folder.with_name("pristine")  # beside it, wherever the run's folder was moved to
        if not pristine.is_dir():
            raise StackError(f"There is no {pristine}, which the stack stands on.", hint="Start a new run.")
        stack = cls(folder, facts.model_copy(update={"pristine": str(pristine)}))
        stack.git.remove_locks()
        return stack

    @property
    def base(self) -> str:
        return self.facts.base

    @property
    def top(self) -> str:
        """The commit on top; the base when nothing was accepted. Raises: GitError."""
        return self.git.text("rev-parse", "--verify", f"{TOP}^{{commit}}")

    def commits(self, top: str | None = None) -> list[StackCommit]:
        """The changes up to `top`, the first one first. Raises: GitError."""
        wanted = f"%H%x00%(trailers:key={TRAILER},valueonly,separator=%x2c)%x00%s"
        said = self.git.text("log", "--reverse", f"--format={wanted}", f"{self.base}..{top or self.top}")
        lines = [line.split("\0") for line in said.split("\n") if line]
        return [StackCommit(commit, attempt.split(",")[-1], title) for commit, attempt, title in lines]

    def diff(self, commit: str, *, since: str | None = None) -> str:
        """What `commit` changes over `since` (its parent when not given), as a candidate's diff. Raises: GitError."""
        return diff_files(self.changed(since or f"{commit}^", commit))

    def changed(self, old_commit: str, new_commit: str) -> dict[str, tuple[FileState | None, FileState | None]]:
        """The files that differ, by path: in the one tree and in the other. Raises: GitError."""
        old, new = list_tree(self.git, old_commit), list_tree(self.git, new_commit)
        read_old, read_new = self._reader(old), self._reader(new)
        return {path: (read_old(path), read_new(path)) for path in _differing(old, new)}

    def materialise(self, commit: str, into: Path) -> None:
        """Write the whole tree of `commit` into the new folder `into`, without any `.git`.

        Raises: FileExistsError, GitError, OSError.
        """
        copy_tree(self.pristine, into, writable=True)
        now = list_tree(self.git, commit)
        paths = _differing(now, self._base_entries)
        contents = self.git.contents(now[path].object_id for path in paths if path in now)
        write_files(into, {path: self._state(path, now.get(path), contents) for path in paths})

    def materialise_candidate(
        self, diff: str, into: Path, rules: PatchRules, *, on: str | None = None
    ) -> AppliedPatch | PatchFinding:
        """Write the tree of `on` (the top when not given) with `diff` applied; with a finding nothing is written.

        Raises: FileExistsError, GitError, OSError.
        """
        commit = on or self.top
        plan = self._plan(diff, rules, commit)
        if isinstance(plan, AppliedPatch):
            self.materialise(commit, into)
            write_files(into, plan.files)
        return plan

    def build(
        self, changes: Sequence[Change], *, on: str | None = None, rules: PatchRules = _ACCEPTED
    ) -> str | Conflict:
        """The last of new commits for these changes, in this order, on `on` (the base when not given).

        `rules` hold for each of them; what was accepted before needs none.

        The stack stays as it is: this makes another version of it, such as one without a commit, to be judged and
        perhaps adopted. The same changes at the same times give the same commit ids. Raises: GitError, DiskFull.
        """
        top = on or self.base
        for change in changes:
            if not _ATTEMPT_ID.fullmatch(change.attempt_id):
                raise ValueError(f"not an attempt id: {change.attempt_id!r}")
            tree = self._tree_with(change, top, rules)
            if isinstance(tree, Conflict):
                return tree
            message = _commit_message(change)
            top = self.git.text("commit-tree", tree, "-p", top, "-F", "-", stdin=message, time_unix=change.time_unix)
        return top

    def adopt(self, commit: str) -> None:
        """Make `commit`, which was built here, the top. Raises: GitError."""
        self.git.run("update-ref", "--create-reflog", TOP, commit, self.top)

    def _tree_with(self, change: Change, top: str, rules: PatchRules) -> str | Conflict:
        made_on = change.made_on or top
        plan = self._plan(change.diff, rules, made_on)
        if isinstance(plan, PatchFinding):
            return Conflict(change.attempt_id, plan.reason)
        entries = list_tree(self.git, made_on)
        for path, state in plan.files.items():
            entries.pop(path, None)
            if (stored := self._to_git(path, state)) is not None:
                entries[path] = Entry("100755" if stored.executable else "100644", write_object(self.git, stored.data))
        tree = write_tree(self.git, entries)
        if made_on == top:
            return tree
        merged, conflicts = merge_trees(self.git, made_on, tree, top)
        if conflicts:
            reason = f"it changes the same lines as another change, in {', '.join(conflicts)}"
            return Conflict(change.attempt_id, reason)
        return self._with_runtime(merged, entries, plan.files)

    def _with_runtime(self, tree: str, made: Mapping[str, Entry], changed: Iterable[str]) -> str:
        """`tree` with the runtime files that its `changed` files import: those of `made` that are not in it."""
        now = list_tree(self.git, tree)
        missing = {path: entry for path, entry in made.items() if PACKAGE in path.split("/") and path not in now}
        there = {path: now[path] for path in changed if path in now}
        contents = self.git.contents(entry.object_id for entry in (*missing.values(), *there.values()))
        texts, known = (
            {path: contents[entry.object_id] for path, entry in each.items() if entry.object_id in contents}
            for each in (there, missing)
        )
        found = needed(texts, known, now.__contains__)
        if not found:
            return tree
        added = {path: Entry("100644", write_object(self.git, data)) for path, data in found.items()}
        return write_tree(self.git, {**now, **added})

    # -- files as they lie in a tree, and as git holds them; only line ends can differ

    def _plan(self, diff: str, rules: PatchRules, commit: str) -> AppliedPatch | PatchFinding:
        """What `diff` would make of the tree of `commit`. Raises: GitError."""
        plan = plan_patch(diff, self._reader(list_tree(self.git, commit)), rules)
        if isinstance(plan, PatchFinding):
            return plan
        # To git and back, so that what is judged is what will be checked out of the stack.
        return AppliedPatch({path: self._to_tree(path, self._to_git(path, plan.files[path])) for path in plan.files})

    @cached_property
    def _base_entries(self) -> Mapping[str, Entry]:
        return list_tree(self.git, self.facts.base)

    def _reader(self, entries: Mapping[str, Entry]) -> Reader:
        on_disk, base = tree_reader(self.pristine), self._base_entries

        def read(path: str) -> FileState | None:
            if path in self.facts.unchangeable:
                raise OutOfReach(f"{path} {self.facts.unchangeable[path]}, so a change of it could not be stored")
            for parent in accumulate(path.split("/"), "{}/{}".format):
                entry = entries.get(parent)
                if entry is not None and not entry.is_file:
                    kind = "submodule" if entry.is_submodule else "symbolic link"
                    raise OutOfReach(f"{parent} is a {kind}, and no change goes through one")
            if path not in entries:
                if path not in base and on_disk(path) is not None:
                    why = "it is ignored, or too large, so a change would be lost"
                    raise OutOfReach(f"{path} is not under version control ({why})")
                return None
            if entries[path] == base.get(path):
                found = on_disk(path)
                # As git has it: where core.fileMode is off, the bit on the disk says nothing.
                return found and replace(found, executable=entries[path].mode == "100755")
            return self._state(path, entries[path], self.git.contents([entries[path].object_id]))

        return read

    def _state(self, path: str, entry: Entry | None, contents: Mapping[str, bytes]) -> FileState | None:
        if entry is None:
            return None
        if entry.object_id not in contents:
            raise GitError(f"The stack has lost the content of {path} ({entry.object_id}).")
        return self._to_tree(path, FileState(contents[entry.object_id], entry.mode == "100755"))

    def _to_git(self, path: str, state: FileState | None) -> FileState | None:
        return self._with_line_ends(path, state, b"\r\n", b"\n")

    def _to_tree(self, path: str, state: FileState | None) -> FileState | None:
        return self._with_line_ends(path, state, b"\n", b"\r\n")

    def _with_line_ends(self, path: str, state: FileState | None, old: bytes, new: bytes) -> FileState | None:
        if state is None or path not in self.facts.crlf:
            return state
        return replace(state, data=state.data.replace(old, new))


def _commit_message(change: Change) -> bytes:
    said = change.message.replace("\0", " ").strip() or "A change without a title"
    return f"{said}\n\n{TRAILER}: {change.attempt_id}\n".encode("utf-8", "replace")


def _differing(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> list[str]:
    return [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
