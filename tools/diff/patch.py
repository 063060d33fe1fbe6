"""Check a candidate's diff and apply it to a tree of ours; the only place where a diff becomes files.

Refuses what no change needs: paths outside the tree, links, version control, protected files, compiled code, large
files. What a diff may not do or does not say rightly is a `PatchFinding`, never an exception.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from tools.diff.apply_hunks import Misfit, apply_hunks
from tools.diff.diff_text import DiffSyntax, FileDiff, parse
from tools.diff.diff_write import compare, render, split_lines
from tools.diff.patch_rules import PatchRules, hides_a_module, never_allowed

_MODES = {"100644": False, "100755": True}


@dataclass(frozen=True)
class FileState:
    """One regular file: its content, and whether it may be executed."""

    data: bytes
    executable: bool = False


class OutOfReach(Exception):
    """A reader's answer for a path that no diff may touch; the message is the reason."""


Reader = Callable[[str], FileState | None]


@dataclass(frozen=True)
class PatchFinding:
    """Why a diff was not applied: `refused` (it does what it may not) or `broken` (it cannot be applied)."""

    kind: Literal["refused", "broken"]
    reason: str


@dataclass(frozen=True)
class AppliedPatch:
    """What a diff did: every path it changed with the new state, None where the file is gone."""

    files: Mapping[str, FileState | None]
    lines_added: int
    lines_removed: int
    digest: str


class _Refused(Exception):
    pass


def digest(diff: str) -> str:
    """First 16 hexadecimal digits of the SHA-256 of what the diff says.

    Mail text, `index` lines, time stamps and the words after @@ do not count; what cannot be read is hashed as it is.
    """
    try:
        said = "".join(render(file) for file in parse(diff)) or diff
    except DiffSyntax:
        said = diff
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def make_diff(tree: Path, new_files: Mapping[str, str | bytes | None]) -> str:
    """The diff that gives the files of `tree` these contents (None deletes); empty when nothing would change.

    Text is written as UTF-8 with its line ends as they are, so read files with `newline=""` before editing them.
    Raises: ValueError when a path leads through a link or is a folder.
    """
    read = tree_reader(tree)
    parts = []
    for path in sorted(new_files):
        content = new_files[path]
        try:
            before = read(path)
        except OutOfReach as reason:
            raise ValueError(f"{path}: {reason}") from reason
        after = content.encode() if isinstance(content, str) else content
        old = None if before is None else before.data
        if file := compare(path, old, after, executable=before is not None and before.executable):
            parts.append(render(file))
    return "".join(parts)


def plan_patch(diff: str, read: Reader, rules: PatchRules) -> AppliedPatch | PatchFinding:
    """What `diff` makes of the files that `read` gives; nothing is written.

    `read` gives a path's state, None where there is no file, and raises OutOfReach where no diff may go.
    """
    if len(diff) > rules.max_diff_bytes:
        return PatchFinding("refused", f"the diff is larger than {rules.max_diff_bytes} characters")
    try:
        parts = parse(diff)
        files = _Plan(read, rules).apply(parts)
    except (DiffSyntax, Misfit) as error:
        return PatchFinding("broken", str(error))
    except (_Refused, OutOfReach) as error:
        return PatchFinding("refused", str(error))
    if not files:
        return PatchFinding("broken", "the diff changes nothing")
    signs = [sign for part in parts for hunk in part.hunks for sign, _ in hunk.lines]
    return AppliedPatch(files, signs.count("+"), signs.count("-"), digest(diff))


def apply_patch(diff: str, tree: Path, rules: PatchRules) -> AppliedPatch | PatchFinding:
    """Apply `diff` to the plain folder `tree`, all of it or, with a finding, nothing. Raises: OSError."""
    outcome = plan_patch(diff, tree_reader(tree), rules)
    if isinstance(outcome, AppliedPatch):
        write_files(tree, outcome.files)
    return outcome


def write_files(tree: Path, files: Mapping[str, FileState | None]) -> None:
    """Bring the files of a tree into these states. Raises: OSError; OutOfReach for a way that leads over a link."""
    read = tree_reader(tree)
    for path in sorted(files, key=lambda path: files[path] is not None):  # deletions first: a file may become a folder
        state, place = files[path], tree / path
        before = read(path)
        if before is not None:
            place.unlink()
        if state is None:
            _remove_empty_folders(tree, place.parent)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:  # a new inode: whoever holds the old one by a hard link keeps it
            file.write(state.data)
        place.chmod(0o755 if state.executable else 0o644)


def tree_reader(tree: Path) -> Reader:
    """Reads regular files of a folder; refuses links, and what lies behind one."""

    def read(path: str) -> FileState | None:
        place = tree
        parts = PurePosixPath(path).parts
        for index, part in enumerate(parts):
            place = place / part
            try:
                mode = place.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                return None
            if stat.S_ISLNK(mode):
                raise OutOfReach(f"{'/'.join(parts[: index + 1])} is a symbolic link, and no change goes through one")
            if index == len(parts) - 1:
                if not stat.S_ISREG(mode):
                    raise OutOfReach(f"{path} is not a regular file")
                return FileState(place.read_bytes(), bool(mode & stat.S_IXUSR))
        raise OutOfReach("the tree itself is not a file")

    return read


def _remove_empty_folders(tree: Path, folder: Path) -> None:
    """As git does: a folder goes with its last file."""
    while folder != tree and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


class _Plan:
    def __init__(self, read: Reader, rules: PatchRules) -> None:
        self.read = read
        self.rules = rules
        self.before: dict[str, FileState | None] = {}
        self.after: dict[str, FileState | None] = {}

    def apply(self, parts: Sequence[FileDiff]) -> dict[str, FileState | None]:
        paths = {path for part in parts for path in (part.old_path, part.new_path) if path is not None}
        if len(paths) > self.rules.max_files:
            raise _Refused(f"the diff touches {len(paths)} files; {self.rules.max_files} are allowed")
        for path in sorted(paths):
            if reason := never_allowed(path) or self.rules.protected(path):
                raise _Refused(f"{path}: {reason}")
        for part in parts:
            self.file(part)
        changed = {path: state for path, state in self.after.items() if state != self.before[path]}
        for path, state in changed.items():
            self.check_new_state(path, state)
        return changed

    def state(self, path: str) -> FileState | None:
        if path not in self.after:
            self.before[path] = self.after[path] = self.read(path)
        return self.after[path]

    def file(self, part: FileDiff) -> None:
        for mode in (part.old_mode, part.new_mode):
            if mode is not None and mode not in _MODES:
                raise _Refused(f"{part.new_path or part.old_path}: file mode {mode}; only plain files may be changed")
        old = None if part.old_path is None else self.state(part.old_path)
        if part.old_path is not None and old is None:
            raise Misfit(f"{part.old_path} does not exist, so it cannot be changed")
        if part.new_path is not None and part.new_path != part.old_path and self.state(part.new_path) is not None:
            raise Misfit(f"{part.new_path} already exists, so it cannot be made anew")
        new = _new_content(part, b"" if old is None else old.data)
        if part.old_path is not None and part.old_path != part.new_path:
            self.after[part.old_path] = None
        if part.new_path is None:
            if new and part.binary is None:
                raise Misfit(f"{part.old_path} is deleted, but the hunks leave lines in it")
            return
        executable = old.executable if old is not None else False
        self.after[part.new_path] = FileState(new, _MODES[part.new_mode] if part.new_mode else executable)

    def check_new_state(self, path: str, state: FileState | None) -> None:
        if state is None:
            return
        if len(state.data) > self.rules.max_file_bytes:
            raise _Refused(f"{path}: {len(state.data)} bytes; {self.rules.max_file_bytes} are allowed")
        if b"\0" in state.data and len(state.data) > self.rules.max_binary_bytes:
            raise _Refused(f"{path}: {len(state.data)} binary bytes; {self.rules.max_binary_bytes} are allowed")
        for parent in list(PurePosixPath(path).parents)[:-1]:
            if self.is_file(str(parent)):
                raise Misfit(f"{parent} is a file, so {path} cannot lie in it")
        folder = hides_a_module(path)
        if folder is not None and self.before[path] is None and not self.is_package(folder):
            raise _Refused(f"{path}: a new module of this name would hide the one that everybody imports")

    def is_file(self, path: str) -> bool:
        try:
            return self.state(path) is not None
        except OutOfReach:  # a folder
            return False

    def is_package(self, folder: str) -> bool:
        return bool(folder) and self.state(f"{folder}/__init__.py") is not None


def _new_content(part: FileDiff, old: bytes) -> bytes:
    if part.binary is not None:
        return part.binary
    if not part.hunks:
        return old if part.new_path is not None else b""
    lines = split_lines(old.decode("utf-8", "surrogateescape"))
    new = apply_hunks(lines, part.hunks, part.old_path or part.new_path or "")
    return "".join(new).encode("utf-8", "surrogateescape")
