"""Copy files and trees.

Does not follow a link or open a pipe, and never makes a hard link: a file of a copy can be rewritten, and the
original must not change with it. Where the file system can share blocks (btrfs, XFS), a copy costs next to nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

_NO_SHARING = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def copy_file(source: Path, to: Path, mode: int) -> None:
    """Copy a regular file to a new name. Raises: OSError, also when the source is none, or a link."""
    # O_NONBLOCK: opening a pipe would wait for a writer.
    with open(source, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as reading:
        if not stat.S_ISREG(os.fstat(reading.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(source))
        with open(to, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as writing:
            _copy_content(reading.fileno(), writing.fileno())
            os.fchmod(writing.fileno(), mode)


def copy_tree(source: Path, into: Path, *, writable: bool) -> None:
    """Copy the files, folders and links of `source` into the new folder `into`; links stay as they are.

    Of the modes only "executable" is kept. Raises: OSError, FileExistsError when `into` is there.
    """
    into.mkdir(parents=True)
    with os.scandir(source) as inside:
        entries = sorted(inside, key=lambda entry: entry.name)
    for entry in entries:
        place = into / entry.name
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir(follow_symlinks=False):
            copy_tree(Path(entry.path), place, writable=writable)
        else:
            executable = bool(entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR)
            copy_file(Path(entry.path), place, file_mode(executable, writable))


def file_mode(executable: bool, writable: bool) -> int:
    """Readable for everybody, because workers run under user ids of their own."""
    return (0o555 if executable else 0o444) | (0o200 if writable else 0)


def _copy_content(reading: int, writing: int) -> None:
    try:
        while os.copy_file_range(reading, writing, 1 << 30):
            pass
        return
    except OSError as error:
        if error.errno not in _NO_SHARING or os.lseek(writing, 0, os.SEEK_CUR):
            raise
    with open(reading, "rb", closefd=False) as source, open(writing, "wb", closefd=False) as to:
        shutil.copyfileobj(source, to, 1 << 20)
