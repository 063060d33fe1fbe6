"""Find the target and its entry, and copy its files into the pristine tree.

Never writes to the target and never runs anything of it. What is copied is the working tree as it is, uncommitted
changes included. Version control, virtual environments, caches and what is no plain file stay behind, and are named.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent.repository.tree_copy import copy_file, file_mode
from sandbox.errors import DiskFull, means_disk_full
from tools.errors import NoSuchEntry, NoSuchTarget, TargetError, TargetTooLarge, TargetUnreadable
from tools.integrity import hash_tree
from tools.tree_removal import remove_tree

MAX_BYTES = 2 << 30
MAX_FILES = 100_000
_SKIPPED_FOLDERS = {"__pycache__": "compiled Python", "node_modules": "JavaScript packages", ".ratchet": "earlier runs"}


@dataclass(frozen=True)
class ImportedFile:
    size: int
    executable: bool


@dataclass(frozen=True)
class ImportedLink:
    """A symbolic link: what it says in the target, and what it says in the copy to mean the same."""

    original: str
    copied: str


@dataclass
class ImportedTarget:
    """The target's files, as they were when they were copied; all paths are relative to the target."""

    root: Path
    tree: Path  # the pristine tree
    files: dict[str, ImportedFile] = field(default_factory=dict)
    links: dict[str, ImportedLink] = field(default_factory=dict)
    not_imported: dict[str, str] = field(default_factory=dict)  # files, and folders with all in them: the reason
    folders: list[str] = field(default_factory=list)
    nested_repositories: list[str] = field(default_factory=list)  # folders with a `.git` of their own

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def notes(self) -> list[str]:
        """What a person should know of the copy, one line each."""
        notes = [f"not copied: {path} ({reason})" for path, reason in self.not_imported.items()]
        outside = {path: link.copied for path, link in self.links.items() if PurePosixPath(link.copied).is_absolute()}
        return notes + [f"leads outside the target: {path} -> {copied}" for path, copied in outside.items()]


def find_target(path: Path) -> Path:
    """The target's folder, absolute. Raises: NoSuchTarget, TargetUnreadable."""
    hint = "--target takes the folder of the repository to make faster."
    try:
        folder = path.expanduser().resolve(strict=True)
        if not folder.is_dir():
            raise NoSuchTarget(f"The target {path} is not a folder.", hint=hint)
        with os.scandir(folder):
            return folder
    except PermissionError as error:
        raise _unreadable(path, error) from error
    except (OSError, RuntimeError, ValueError) as error:  # missing, links in a circle, no name at all
        raise NoSuchTarget(f"There is no target {path}.", hint=hint) from error


def find_entry(target: Path, entry: str) -> str:
    """The entry's path relative to the target; `entry` may be relative to it, to the current folder, or absolute.

    Raises: NoSuchEntry, TargetUnreadable.
    """
    hint = "--entry takes a script inside the target, such as bench.py."
    target = find_target(target)
    for place in (target / entry, Path(entry).expanduser().absolute()):
        if _is_file(place):
            resolved = place.resolve()
            if not resolved.is_relative_to(target):
                raise NoSuchEntry(f"The entry {entry} lies outside the target {target}.", hint=hint)
            found = resolved.relative_to(target)
            if any(reason_to_skip(target / parent) for parent in found.parents if parent.parts):
                raise NoSuchEntry(f"The entry {entry} lies in a folder that is not part of the program.", hint=hint)
            if not os.access(resolved, os.R_OK, effective_ids=True):
                raise TargetUnreadable(f"The entry {entry} cannot be read.", hint="Make it readable for this user.")
            return found.as_posix()
    found_in = sorted(path.name for path in target.glob("*.py"))[:5]
    has = f" Scripts at its top: {', '.join(found_in)}." if found_in else ""
    raise NoSuchEntry(f"There is no entry {entry} in the target {target}.{has}", hint=hint)


def tree_hash(target: Path, *, leave_out: Sequence[Path] = ()) -> str:
    """A digest of all that must be the same before and after a run: every file's name, mode and content.

    Version control is not in it, because the result is a branch there; nor are the folders that a run does not copy:
    environments, which may be large and which `tools.integrity.Manifest` watches, and what Python and earlier runs
    leave. Raises: TargetUnreadable.
    """
    apart = {path.resolve() for path in leave_out}

    def passed_over(path: Path) -> bool:
        return path.name == ".git" or path in apart or reason_to_skip(path) is not None

    try:
        return hash_tree(target, leave_out=passed_over)
    except OSError as error:
        raise _unreadable(target, error) from error


def check_size(target: Path) -> None:
    """Whether a run would copy it, by a listing alone. Raises: NoSuchTarget, TargetTooLarge, TargetUnreadable."""
    root = find_target(target)
    _listed(root, root, (), MAX_BYTES, MAX_FILES)


def import_target(
    target: Path,
    into: Path,
    *,
    leave_out: Sequence[Path] = (),
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> ImportedTarget:
    """Copy the target's files into the folder `into`, which is ours and is made again.

    `leave_out` names folders of the target that are too large to copy; a link to each takes its place.
    Raises: NoSuchTarget, TargetTooLarge, TargetUnreadable, DiskFull, TargetError.
    """
    root = find_target(target)
    into = into.absolute()
    if into.resolve().is_relative_to(root) or root.is_relative_to(into.resolve()):
        hint = "Start the run from another folder."
        raise TargetError(f"The run's files would lie in the target {root}, which is never written to.", hint=hint)
    imported = _listed(root, into, leave_out, max_bytes, max_files)
    try:
        remove_tree(into)
        _copy(imported)
    except OSError as error:
        if means_disk_full(error.errno):
            needed = _said(imported.size_bytes, True)
            hint = f"{needed} are needed in {into.parent}, and again for each tree at work."
            raise DiskFull("The disk is full: the target's files could not be copied.", hint=hint) from error
        raise
    return imported


def _copy(imported: ImportedTarget) -> None:
    imported.tree.mkdir(parents=True)
    for folder in imported.folders:  # empty ones too: a program may expect to find them
        (imported.tree / folder).mkdir()
    for path, link in imported.links.items():
        (imported.tree / path).symlink_to(link.copied)
    for path, file in list(imported.files.items()):
        source = imported.root / path
        try:
            copy_file(source, imported.tree / path, file_mode(file.executable, writable=False))
        except OSError as error:
            if error.filename is None or str(error.filename) != str(source):
                raise  # our side failed
            del imported.files[path]
            imported.not_imported[path] = f"cannot be read: {error.strerror}"


def _listed(root: Path, tree: Path, leave_out: Sequence[Path], max_bytes: int, max_files: int) -> ImportedTarget:
    imported = ImportedTarget(root, tree)
    _Lister(imported, {path.resolve() for path in leave_out}).folder(root, "")
    size, count = imported.size_bytes, len(imported.files)
    if size <= max_bytes and count <= max_files:
        return imported
    by_size = size > max_bytes
    tops: Counter[str] = Counter()
    for path, file in imported.files.items():
        tops[path.split("/")[0]] += file.size if by_size else 1
    largest = ", ".join(f"{name} ({_said(amount, by_size)})" for name, amount in tops.most_common(3))
    raise TargetTooLarge(
        f"The target holds {_said(size if by_size else count, by_size)}, and a run copies at most "
        f"{_said(max_bytes if by_size else max_files, by_size)}. The largest in it: {largest}.",
        hint="Keep weights and data outside, and name their folder with --mount.",
    )


def _said(amount: int, is_size: bool) -> str:
    return f"{amount / 2**20:.1f} MiB" if is_size else f"{amount} files"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError as error:
        raise TargetUnreadable(f"The entry {path} cannot be read.", hint="Make its folder readable.") from error


@dataclass
class _Lister:
    """Walks the target and notes what to copy."""

    imported: ImportedTarget
    apart: set[Path]

    def folder(self, folder: Path, prefix: str) -> None:
        try:
            with os.scandir(folder) as inside:
                entries = sorted(inside, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise _unreadable(folder, error) from error
            self.imported.not_imported[prefix.rstrip("/")] = f"cannot be read: {error.strerror}"
            return
        for entry in entries:
            if entry.name.lower() == ".git":
                if prefix:
                    self.imported.nested_repositories.append(prefix.rstrip("/"))
            else:
                self.entry(entry, prefix + entry.name)

    def entry(self, entry: os.DirEntry[str], path: str) -> None:
        place, left = Path(entry.path), self.imported.not_imported
        try:
            path.encode()
            found = entry.stat(follow_symlinks=False)
        except UnicodeEncodeError:
            left[path.encode("utf-8", "replace").decode()] = "its name is not UTF-8"
            return
        except OSError as error:
            left[path] = f"cannot be read: {error.strerror}"
            return
        if place in self.apart:
            self.imported.links[path] = ImportedLink("", str(place))
        elif stat.S_ISLNK(found.st_mode):
            said = str(place.readlink())
            self.imported.links[path] = ImportedLink(said, _link_in_copy(self.imported.root, place, said))
        elif stat.S_ISDIR(found.st_mode):
            if reason := reason_to_skip(place):
                left[path] = reason
            else:
                self.imported.folders.append(path)
                self.folder(place, path + "/")
        elif stat.S_ISREG(found.st_mode):
            self.imported.files[path] = ImportedFile(found.st_size, bool(found.st_mode & stat.S_IXUSR))
        else:
            left[path] = "neither a file, a folder nor a link"


def _link_in_copy(root: Path, place: Path, said: str) -> str:
    """What a link has to say in the copy to lead to the same thing.

    Inside the target it leads to the copy of what it led to. Outside, it is made absolute: a relative one would lead
    to whatever lies beside the copy, which are the run's own files.
    """
    leads_to = Path(os.path.realpath(place))
    if not leads_to.is_relative_to(root):
        return str(leads_to)
    by_words = os.path.normpath(place.parent.relative_to(root) / said)
    if not said.startswith("/") and by_words.split("/")[0] != "..":
        return said
    return os.path.relpath(leads_to, place.parent)


def reason_to_skip(folder: Path) -> str | None:
    """Why a folder is not copied; None when it is."""
    if folder.name in _SKIPPED_FOLDERS:
        return _SKIPPED_FOLDERS[folder.name]
    try:
        installed = (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()
    except PermissionError:
        return None
    return "an environment with installed packages" if installed else None


def _unreadable(path: Path, error: OSError) -> TargetUnreadable:
    return TargetUnreadable(f"The target {path} cannot be read ({error.strerror}).", hint="Make it readable.")
