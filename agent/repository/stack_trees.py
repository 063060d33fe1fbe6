"""The trees of a stack's commits: read a file of one, write one out, put changed files into a new one.

A tree is the pristine tree with the files that differ from the base, so it is complete (data that git ignores is in
it) and byte for byte what was imported. Refuses to write what no commit can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agent.repository.new_stack import StackFile
from agent.repository.objects import Entry, list_tree, write_object, write_tree
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


class StackTrees:
    """Files as they lie in a tree on one side, as git holds them on the other; only line ends can differ."""

    def __init__(self, git: PrivateGit, facts: StackFile) -> None:
        self.git = git
        self.facts = facts
        self.pristine = Path(facts.pristine)
        self._crlf = frozenset(facts.crlf)
        self._base_entries: Mapping[str, Entry] | None = None

    def materialise(self, commit: str, into: Path) -> None:
        """Raises: FileExistsError, GitError, OSError."""
        copy_tree(self.pristine, into, writable=True)
        now, base = list_tree(self.git, commit), self._base()
        changed = [path for path in now.keys() | base.keys() if now.get(path) != base.get(path)]
        contents = self.git.contents(now[path].object_id for path in changed if path in now)
        write_files(into, {path: self._state(path, now.get(path), contents) for path in changed})

    def plan(self, diff: str, rules: PatchRules, commit: str) -> AppliedPatch | PatchFinding:
        """What `diff` would make of the tree of `commit`. Raises: GitError."""
        plan = plan_patch(diff, self._reader(list_tree(self.git, commit)), rules)
        if isinstance(plan, PatchFinding):
            return plan
        # To git and back, so that what is judged is what will be checked out of the stack.
        return AppliedPatch({path: self._to_tree(path, self._to_git(path, plan.files[path])) for path in plan.files})

    def write(self, commit: str, files: Mapping[str, FileState | None]) -> str:
        """The id of the tree of `commit` with these files in these states. Raises: GitError, DiskFull."""
        entries = list_tree(self.git, commit)
        for path, state in files.items():
            stored = self._to_git(path, state)
            entries.pop(path, None)
            if stored is not None:
                entries[path] = Entry("100755" if stored.executable else "100644", write_object(self.git, stored.data))
        return write_tree(self.git, entries)

    def diff(self, old_commit: str, new_commit: str) -> str:
        """What leads from one tree to the other, written as candidates are. Raises: GitError."""
        return diff_files(self.changed(old_commit, new_commit))

    def changed(self, old_commit: str, new_commit: str) -> dict[str, tuple[FileState | None, FileState | None]]:
        """The files that differ, by path: in the one tree and in the other. Raises: GitError."""
        old, new = list_tree(self.git, old_commit), list_tree(self.git, new_commit)
        read_old, read_new = self._reader(old), self._reader(new)
        paths = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
        return {path: (read_old(path), read_new(path)) for path in paths}

    def _base(self) -> Mapping[str, Entry]:
        if self._base_entries is None:
            self._base_entries = list_tree(self.git, self.facts.base)
        return self._base_entries

    def _reader(self, entries: Mapping[str, Entry]) -> Reader:
        on_disk, base = tree_reader(self.pristine), self._base()

        def read(path: str) -> FileState | None:
            if path in self.facts.unchangeable:
                raise OutOfReach(f"{path} {self.facts.unchangeable[path]}, so a change of it could not be stored")
            for parent in _with_parents(path):
                entry = entries.get(parent)
                if entry is not None and not entry.is_file:
                    kind = "symbolic link" if entry.is_link else "submodule"
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
        if state is None or path not in self._crlf:
            return state
        return FileState(state.data.replace(b"\r\n", b"\n"), state.executable)

    def _to_tree(self, path: str, state: FileState | None) -> FileState | None:
        if state is None or path not in self._crlf:
            return state
        return FileState(state.data.replace(b"\n", b"\r\n"), state.executable)


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: index + 1]) for index in range(len(parts))]
