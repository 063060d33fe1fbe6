"""Tell whether files changed: a quick manifest for many files, a digest of the contents for a few.

Does not decide what a change means. A manifest trusts the kernel's change time (ctime), which only root can set, so
a file that is rewritten and given its old size and time back still shows. Compiled Python (`__pycache__`) counts:
workers do not write any, and a forged one runs in place of its source.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK_BYTES = 1 << 20
_Facts = tuple[int, ...] | str


@dataclass(frozen=True)
class Manifest:
    """What the kernel says of every file under some folders, at one moment.

    A file: mode, inode, size, mtime_ns, ctime_ns. A folder: mode and inode, because its times change with its files,
    which are listed themselves. Links are not followed, save those that are named as roots.
    """

    roots: tuple[Path, ...]
    entries: Mapping[str, _Facts]

    @classmethod
    def take(cls, roots: Iterable[Path]) -> Manifest:
        """40,000 files take about 0.3 s. What cannot be read is listed as such and is no error."""
        kept = tuple(roots)
        entries: dict[str, _Facts] = {}
        for root in kept:
            _list(str(root.resolve()), entries)
        return cls(kept, entries)

    def changes(self, since: Manifest) -> list[str]:
        """One line for each difference, sorted by path: `added …`, `removed …`, `changed …`."""
        found = []
        for path in sorted(self.entries.keys() | since.entries.keys()):
            before, now = since.entries.get(path), self.entries.get(path)
            if before != now:
                found.append(f"{'added' if before is None else 'removed' if now is None else 'changed'} {path}")
        return found


def _list(root: str, entries: dict[str, _Facts]) -> None:
    try:
        entries[root] = _facts(os.lstat(root))
    except OSError as error:
        entries[root] = f"cannot be read: {error.strerror}"
        return
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as inside:
                for entry in inside:
                    entries[entry.path] = _facts(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except NotADirectoryError:  # a root that is a file
            continue
        except OSError as error:
            entries[f"{folder}/"] = f"cannot be read: {error.strerror}"


def _facts(found: os.stat_result) -> _Facts:
    if stat.S_ISDIR(found.st_mode):
        return (found.st_mode, found.st_ino)
    return (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def hash_tree(root: Path, *, leave_out: Callable[[Path], bool] = lambda path: False) -> str:
    """A digest of everything below `root`: names, kinds, modes, contents, where links lead. Times do not count.

    `leave_out` names folders and files that are passed over. What cannot be read counts as such, and what is removed
    meanwhile does not count.
    Raises: OSError when `root` itself cannot be listed.
    """
    whole = hashlib.sha256()
    for path in walk(root, leave_out):
        content = _content(path)
        if content is None:
            continue
        name = os.fsencode(path.relative_to(root))
        for part in (name, *content):
            whole.update(len(part).to_bytes(8, "little"))  # so that no two different trees run together
            whole.update(part)
    return whole.hexdigest()


def walk(root: Path, leave_out: Callable[[Path], bool]) -> Iterator[Path]:
    """Everything below `root` in a fixed order, a folder before what it holds. Links are not followed.

    Of a folder that cannot be listed, or is removed meanwhile, nothing more comes. Raises: OSError, of `root` itself.
    """
    for path in sorted(root.iterdir()):
        if leave_out(path):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            try:
                yield from walk(path, leave_out)
            except (PermissionError, FileNotFoundError, NotADirectoryError):
                continue


def _content(path: Path) -> tuple[bytes, bytes] | None:
    """What is there, and what it holds; None when it is gone."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return b"link", os.fsencode(path.readlink())
        said = f"{stat.S_IFMT(mode):o} {stat.S_IMODE(mode):o}".encode()
        return said, _digest(path) if stat.S_ISREG(mode) else b""
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:  # its folder can be listed and not entered
        return b"unreadable", b""


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except PermissionError:
        return b"unreadable"
    return digest.digest()
