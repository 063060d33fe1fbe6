"""Folders that untrusted code fills, and their removal: nested beyond any stack, closed to their owner, full of links.

Does not follow a link. Works without recursion: a folder inside a folder is first moved up to the top, so that no
path gets long, no more than three folders are open at a time, and none is too deep.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path


@contextlib.contextmanager
def passable_folder(prefix: str, within: Path | None = None) -> Iterator[Path]:
    """A new folder that the separate users of commands pass through without listing it; removed afterwards.

    Raises: OSError when it cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        folder.chmod(0o711)
        yield folder
    finally:
        with contextlib.suppress(OSError):
            remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all that is in it; nothing where there is none. Raises: OSError."""
    try:
        top = _opened(str(folder), None)
    except FileNotFoundError:
        return
    prefix = secrets.token_hex(8)
    moved = (f"{prefix}-{number}" for number in count())
    try:
        while names := _names(top):
            for name in names:
                _remove(top, name, moved)
    finally:
        os.close(top)
    folder.rmdir()


def _remove(top: int, name: str, moved: Iterator[str]) -> None:
    """Remove an entry of the top folder; what folders it holds become entries of the top folder instead."""
    if not _is_folder(top, name):
        os.unlink(name, dir_fd=top)
        return
    inside = _opened(name, top)
    try:
        for entry in _names(inside):
            if _is_folder(inside, entry):
                os.close(_opened(entry, inside))  # to move it is to change it
                os.rename(entry, next(moved), src_dir_fd=inside, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inside)
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=top)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as inside:
        return [entry.name for entry in inside]


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _opened(name: str, parent: int | None) -> int:
    """A folder, opened, and made writable for its owner. Raises: OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent)
        folder = os.open(name, flags, dir_fd=parent)
    with contextlib.suppress(PermissionError):  # someone else's, which only root may change
        os.fchmod(folder, 0o700)
    return folder
