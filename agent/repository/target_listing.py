"""List what is in the target, and say what of it a run copies.

Never opens a file and never follows a link. Version control, virtual environments, caches and what is no plain file
stay behind, and are named.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tools.errors import TargetUnreadable

_SKIPPED_FOLDERS = {"__pycache__": "compiled Python", "node_modules": "JavaScript packages", ".ratchet": "earlier runs"}


@dataclass(frozen=True)
class ImportedFile:
    path: str  # relative to the target
    size: int
    executable: bool


@dataclass(frozen=True)
class ImportedLink:
    """A symbolic link: what it says in the target, and what it says in the copy to mean the same."""

    path: str
    original: str
    copied: str


@dataclass(frozen=True)
class NotImported:
    """A file, or a folder with all that is in it, that is in the target and not in the copy."""

    path: str
    reason: str


@dataclass
class ImportedTarget:
    """The target's files, as they were when they were copied."""

    root: Path
    tree: Path  # the pristine tree
    files: list[ImportedFile] = field(default_factory=list)
    links: list[ImportedLink] = field(default_factory=list)
    not_imported: list[NotImported] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    nested_repositories: list[str] = field(default_factory=list)  # folders with a `.git` of their own

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def notes(self) -> list[str]:
        """What a person should know of the copy, one line each."""
        notes = [f"not copied: {left.path} ({left.reason})" for left in self.not_imported]
        outside = [link for link in self.links if PurePosixPath(link.copied).is_absolute()]
        return notes + [f"leads outside the target: {link.path} -> {link.copied}" for link in outside]


class Lister:
    """Walks the target and notes what to copy."""

    def __init__(self, imported: ImportedTarget, apart: set[Path]) -> None:
        self.imported = imported
        self.apart = apart

    def folder(self, folder: Path, prefix: str) -> None:
        try:
            with os.scandir(folder) as inside:
                entries = sorted(inside, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise unreadable(folder, error) from error
            self.leave(prefix.rstrip("/"), f"cannot be read: {error.strerror}")
            return
        for entry in entries:
            if entry.name.lower() == ".git":
                if prefix:
                    self.imported.nested_repositories.append(prefix.rstrip("/"))
            else:
                self.entry(entry, prefix + entry.name)

    def entry(self, entry: os.DirEntry[str], path: str) -> None:
        place = Path(entry.path)
        try:
            path.encode()
            found = entry.stat(follow_symlinks=False)
        except UnicodeEncodeError:
            self.leave(path.encode("utf-8", "replace").decode(), "its name is not UTF-8")
            return
        except OSError as error:
            self.leave(path, f"cannot be read: {error.strerror}")
            return
        if place in self.apart:
            self.imported.links.append(ImportedLink(path, "", str(place)))
        elif stat.S_ISLNK(found.st_mode):
            said = str(place.readlink())
            self.imported.links.append(ImportedLink(path, said, _link_in_copy(self.imported.root, place, said)))
        elif stat.S_ISDIR(found.st_mode):
            if reason := reason_to_skip(place):
                self.leave(path, reason)
            else:
                self.imported.folders.append(path)
                self.folder(place, path + "/")
        elif stat.S_ISREG(found.st_mode):
            executable = bool(found.st_mode & stat.S_IXUSR)
            self.imported.files.append(ImportedFile(path, found.st_size, executable))
        else:
            self.leave(path, "neither a file, a folder nor a link")

    def leave(self, path: str, reason: str) -> None:
        self.imported.not_imported.append(NotImported(path, reason))


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
    return "an environment with installed packages" if is_environment(folder) else None


def is_environment(folder: Path) -> bool:
    """Whether installed packages are in it, which may be many and are watched in another way."""
    try:
        return folder.name == "node_modules" or (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()
    except PermissionError:
        return False


def unreadable(path: Path, error: OSError) -> TargetUnreadable:
    return TargetUnreadable(f"The target {path} cannot be read ({error.strerror}).", hint="Make it readable.")
