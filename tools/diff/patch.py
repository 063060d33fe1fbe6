"""Make diffs, and look at what a candidate's diff would write before anything is written. git reads and writes them.

Paths outside the tree, links, version control, protected files, compiled code and large files are refused. What a diff
may not do or does not say rightly is a `PatchFinding`, never an exception.
"""

from __future__ import annotations

import hashlib
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from tools.diff.hunks import Misfit, objection, read_hunks
from tools.diff.patch_rules import PatchRules, hides_a_module, never_allowed
from tools.private_git import GitResult, PrivateGit, listed, quoted

_MODES = {"100644": False, "100755": True}
_DIFF = "diff-tree -p --no-renames --binary --no-ext-diff --no-textconv before after"
_APPLY = ("apply", "--verbose", "--unidiff-zero", "--whitespace=nowarn")
_ODD_MODE = re.compile(r"^ (?:(?:create|delete) mode|mode change .*=>) (?!100644|100755)(\d+)", re.M)
_BINARY = re.compile(r"^(?:literal|delta) (\d{1,18})$", re.M)
_WITH_PREFIX = re.compile(r'^(?:diff --git "?a/|\+\+\+ "?b/|--- "?a/.*\n\+\+\+ /dev/null)', re.M)


@dataclass(frozen=True)
class FileState:
    """One regular file: its content, and whether it may be executed."""

    data: bytes
    executable: bool = False


class OutOfReach(Exception):
    """No diff may do this, or touch this path; the message is the reason."""


Files = Mapping[str, FileState | None]
Reader = Callable[[str], FileState | None]


@dataclass(frozen=True)
class PatchFinding:
    """Why a diff was not applied: `refused` (it does what it may not) or `broken` (it cannot be applied)."""

    kind: Literal["refused", "broken"]
    reason: str


@dataclass(frozen=True)
class AppliedPatch:
    """What a diff did: every path it changed with the new state, None where the file is gone."""

    files: Files


def digest(diff: str) -> str:
    """First 16 hexadecimal digits of the SHA-256 of what the diff says; it names a change.

    What stands before the first file, `index` lines and the words after @@ do not count.
    """
    start = re.search(r"^(?:diff --git|---) ", diff, re.M)
    said = re.sub(r"^index .*\n", "", diff[start.start() :] if start else diff, flags=re.M)
    said = re.sub(r"^(@@ .*? @@).*", r"\1", said, flags=re.M)
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def changed_paths(diff: str) -> list[str]:
    """The files that a diff says to change, as they are called afterwards. Raises: Misfit."""
    with _scratch() as git:
        return [name for name, _ in _names(git, diff, PatchRules())]


def make_diff(tree: Path, new_files: Mapping[str, str | bytes | None]) -> str:
    """The diff that gives the files of `tree` these contents (None deletes); empty when nothing would change.

    Text is written as UTF-8 with its line ends as they are, so read files with `newline=""` before editing them.
    Raises: ValueError when a path leads through a link or is a folder.
    """
    read = tree_reader(tree)
    changes: dict[str, tuple[FileState | None, FileState | None]] = {}
    for path, content in new_files.items():
        try:
            before = read(path)
        except OutOfReach as reason:
            raise ValueError(f"{path}: {reason}") from reason
        data = content.encode() if isinstance(content, str) else content
        executable = before is not None and before.executable
        changes[path] = before, None if data is None else FileState(data, executable)
    return diff_files(changes)


def diff_files(changes: Mapping[str, tuple[FileState | None, FileState | None]]) -> str:
    """The diff between two states of files, by path; valid UTF-8, so a file that is not travels as binary."""
    if all(before == after for before, after in changes.values()):
        return ""
    with _scratch() as git:
        before, after = ({path: states[side] for path, states in changes.items()} for side in (0, 1))
        _store(git, before=before, after=after)
        try:
            return git.run(*_DIFF.split()).stdout.decode()
        except UnicodeDecodeError:
            return "".join(_diff_of_one(git, path) for path in sorted(changes))


def _diff_of_one(git: PrivateGit, path: str) -> str:
    attributes = git.folder / "info" / "attributes"
    attributes.write_text("* diff\n")
    try:
        return git.run(*_DIFF.split(), "--", path).stdout.decode()
    except UnicodeDecodeError:
        attributes.write_text("* -diff\n")
        return git.run(*_DIFF.split(), "--", path).stdout.decode()


def plan_patch(diff: str, read: Reader, rules: PatchRules) -> AppliedPatch | PatchFinding:
    """What `diff` makes of the files that `read` gives; nothing is written.

    `read` gives a path's state, None where there is no file, and raises OutOfReach where no diff may go.
    """
    if len(diff) > rules.max_diff_bytes:
        return PatchFinding("refused", f"the diff is larger than {rules.max_diff_bytes} characters")
    try:
        with _scratch() as git:
            files = _Plan(git, read, rules).apply(diff)
    except Misfit as error:
        return PatchFinding("broken", str(error))
    except OutOfReach as error:
        return PatchFinding("refused", str(error))
    return AppliedPatch(files) if files else PatchFinding("broken", "the diff changes nothing")


def apply_patch(diff: str, tree: Path, rules: PatchRules) -> AppliedPatch | PatchFinding:
    """Apply `diff` to the plain folder `tree`, all of it or, with a finding, nothing. Raises: OSError."""
    outcome = plan_patch(diff, tree_reader(tree), rules)
    if isinstance(outcome, AppliedPatch):
        write_files(tree, outcome.files)
    return outcome


def write_files(tree: Path, files: Files) -> None:
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


# -- with git, in a repository that holds the files of one diff


@contextmanager
def _scratch() -> Iterator[PrivateGit]:
    with tempfile.TemporaryDirectory(prefix="ratchet-diff-") as folder:
        yield PrivateGit.create(Path(folder))


def _store(git: PrivateGit, **branches: Files) -> None:
    """For each branch one commit of these files."""
    stream = []
    for branch, files in branches.items():
        stream.append(f"commit refs/heads/{branch}\ncommitter <> 0 +0000\ndata 0\n".encode())
        for path, state in files.items():
            if state is not None:
                mode = b"100755" if state.executable else b"100644"
                stream += [b"M %s inline %s\ndata %d\n" % (mode, quoted(path), len(state.data)), state.data, b"\n"]
    git.run("fast-import", "--quiet", stdin=b"".join(stream))


def _git_apply(git: PrivateGit, diff: str, rules: PatchRules, *options: str, index: Path | None = None) -> GitResult:
    strip = "-p1" if _WITH_PREFIX.search(diff) else "-p0"
    given, limit = diff.encode("utf-8", "surrogateescape"), 2 * rules.max_diff_bytes
    command = (*_APPLY, strip, *options, "-")
    return git.run(*command, stdin=given, index=index, accept=range(256), max_allocation_bytes=limit)


def _names(git: PrivateGit, diff: str, rules: PatchRules) -> list[tuple[str, str]]:
    """Of each file of the diff its name after and before. Raises: Misfit, OutOfReach."""
    unpacked = sum(map(int, _BINARY.findall(diff)))
    if unpacked > 2 * rules.max_diff_bytes:
        raise Misfit(f"its binary files would unpack to {unpacked} bytes")
    names = []
    for direction in ((), ("-R",)):
        said = _git_apply(git, diff, rules, *direction, "--numstat", "-z", "--summary")
        if said.status:
            raise Misfit(objection([], said.stderr, []) or "git cannot read it")
        text = said.stdout.decode("utf-8", "surrogateescape")
        names.append([line.split("\t", 2)[2] for line in text.split("\0") if line.count("\t") >= 2])
        if odd := _ODD_MODE.search(text.rpartition("\0")[2]):
            raise OutOfReach(f"file mode {odd[1]}; only plain files may be changed")
    return list(zip(*names, strict=True))


@dataclass
class _Plan:
    git: PrivateGit
    read: Reader
    rules: PatchRules
    before: dict[str, FileState | None] = field(default_factory=dict)

    def apply(self, diff: str) -> dict[str, FileState | None]:
        hunks, names = read_hunks(diff), _names(self.git, diff, self.rules)
        self.look_at({path for pair in names for path in pair})
        if len(hunks) != len(names):
            raise Misfit("a file of the diff is named, and not what happens to it")
        old = [(path, self.before[path]) for _, path in names]
        contents = [(path, state.data.decode("utf-8", "surrogateescape") if state else "") for path, state in old]
        index = self.git.folder / "index"
        _store(self.git, before=self.before)
        self.git.run("read-tree", "before", index=index)
        said = _git_apply(self.git, diff, self.rules, "--cached", index=index)
        if reason := objection(hunks, said.stderr, contents) or (said.status and "git cannot apply it"):
            raise Misfit(reason)
        after = self.written(index)
        self.look_at(after.keys() - self.before.keys())
        changed = {path: after.get(path) for path in self.before if after.get(path) != self.before[path]}
        for path, state in changed.items():
            if state is not None:
                self.check_new_state(path, state, changed)
        return changed

    def look_at(self, paths: AbstractSet[str]) -> None:
        """Read what is there now, where the rules let a diff touch it. Raises: OutOfReach."""
        if len(paths) > self.rules.max_files:
            raise OutOfReach(f"the diff touches {len(paths)} files; {self.rules.max_files} are allowed")
        for path in sorted(paths):
            if reason := never_allowed(path) or self.rules.protected(path):
                raise OutOfReach(f"{path}: {reason}")
        self.before |= {path: self.read(path) for path in sorted(paths)}

    def written(self, index: Path) -> dict[str, FileState]:
        """What is in the index after git has applied the diff. Raises: OutOfReach."""
        entries = list(listed(self.git.run("ls-files", "--stage", "-z", index=index).stdout))
        if odd := next(((path, mode) for (mode, _, _), path in entries if mode not in _MODES), None):
            raise OutOfReach(f"{odd[0]}: file mode {odd[1]}; only plain files may be changed")
        contents = self.git.contents(object_id for (_, object_id, _), _ in entries)
        return {path: FileState(contents[object_id], _MODES[mode]) for (mode, object_id, _), path in entries}

    def check_new_state(self, path: str, state: FileState, changed: Files) -> None:
        binary = b"\0" in state.data
        allowed = min(self.rules.max_file_bytes, self.rules.max_binary_bytes) if binary else self.rules.max_file_bytes
        if len(state.data) > allowed:
            kind = "binary bytes" if binary else "bytes"
            raise OutOfReach(f"{path}: {len(state.data)} {kind}; {allowed} are allowed")
        for parent in list(PurePosixPath(path).parents)[:-1]:
            if self.is_file(str(parent), changed):
                raise Misfit(f"{parent} is a file, so {path} cannot lie in it")
        folder = hides_a_module(path)
        if folder is None or self.before[path] is not None:
            return
        if not (folder and self.is_file(f"{folder}/__init__.py", changed)):
            raise OutOfReach(f"{path}: a new module of this name would hide the one that everybody imports")

    def is_file(self, path: str, changed: Files) -> bool:
        try:
            return (changed[path] if path in changed else self.read(path)) is not None
        except OutOfReach:  # a folder
            return False
