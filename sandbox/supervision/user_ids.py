"""Separate user ids for commands: choose one, hand it its folders, tell whether it can reach what it needs.

Only the mode of the agent's own files is changed: what a user mounts stays as it is.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.contract import Command
from sandbox.errors import Unusable

# Neither people, nor services, nor containers get ids from here: systemd's table of user ids leaves
# 1879048192 to 2147483647 free.
_FIRST, _LAST = 1_900_000_000, 2_000_000_000
_PER_AGENT = 10_000
_REFUSED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP)  # EINVAL: a user id that is not mapped here


def fresh_ids() -> Iterator[int]:
    """User ids that nobody else has, one after another. A random start keeps two agents on one machine apart."""
    start = _FIRST + _PER_AGENT * secrets.randbelow((_LAST - _FIRST) // _PER_AGENT)
    return itertools.cycle(range(start, start + _PER_AGENT))


def give(folder: Path, uid: int) -> None:
    """Make `uid` the owner of a folder and all in it, closed to others. Raises: Unusable, OSError.

    A file with further links is left alone, because its other names may be someone else's; in its own folder
    the command can still replace it.
    """
    with _permitted(folder):
        for path, facts in _everything(folder):
            if stat.S_ISDIR(facts.st_mode) or facts.st_nlink == 1:
                os.chown(path, uid, uid, follow_symlinks=False)
        folder.chmod(0o700)


@contextlib.contextmanager
def _permitted(folder: Path) -> Iterator[None]:
    """Raises: Unusable where not even root may give files away, as on many file systems of networks."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        message = f"{folder} cannot be given to a separate user: {error.strerror}"
        hint = "Name a folder on a local disk with --runs-dir, or with the variable TMPDIR; or do not run as root."
        raise Unusable("users", message, hint=hint, error_number=error.errno or 0) from error


def show(folder: Path) -> None:
    """Let every user read a folder of the agent's own and all in it. Raises: OSError."""
    for path, facts in _everything(folder):
        mode = stat.S_IMODE(facts.st_mode)
        if stat.S_ISDIR(facts.st_mode):
            wanted = mode | 0o055
        elif stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1:
            wanted = mode | 0o044 | (0o011 if mode & 0o100 else 0)
        else:
            continue
        if wanted != mode:
            Path(path).chmod(wanted)


def _everything(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    yield str(folder), folder.lstat()
    for parent, folders, files in os.walk(folder):
        for name in itertools.chain(folders, files):
            path = f"{parent}/{name}"
            yield path, os.lstat(path)


def closed_to(uid: int, groups: Iterable[int], path: Path, below: Path = Path("/")) -> Path | None:
    """The folder on the way to `path`, or `path` itself, that this user may not enter or read; None if it may.

    The way begins with the folder `below`, where what lies above it is passed by a mount.
    """
    path = path.resolve()
    for step in (each for each in reversed([path, *path.parents]) if each.is_relative_to(below)):
        try:
            facts = step.stat()
        except FileNotFoundError:
            return step
        needed = 0o1 if step != path else (0o5 if stat.S_ISDIR(facts.st_mode) else 0o4)
        if facts.st_uid == uid:
            granted = facts.st_mode >> 6
        elif facts.st_gid == uid or facts.st_gid in groups:
            granted = facts.st_mode >> 3
        else:
            granted = facts.st_mode
        if granted & needed != needed:
            return step
    return None


def hand_over(uid: int, command: Command, owned: Iterable[Path]) -> None:
    """Give a command its folders; only what lies in `owned` may have its mode changed. Raises: Unusable, OSError."""
    for folder in command.writable:
        give(folder, uid)
    ours = [folder.resolve() for folder in owned]
    for path in command.readable:
        if any(path.resolve().is_relative_to(folder) for folder in ours):
            show(path)


def need_within_reach(uid: int, groups: Iterable[int], command: Command) -> None:
    """For a command that sees this machine's own paths, where a folder above its own can be in its way.

    Raises: Unusable.
    """
    for path in (command.cwd, *command.readable, *command.writable):
        closed = closed_to(uid, groups, path)
        if closed is not None:
            message = f"{path} is out of reach of the separate user of {command.role}: {closed} is closed to it"
            hint = f"Let others pass it (chmod o+rx {closed}), or keep it somewhere that is open to others."
            raise Unusable("users", message, hint=hint)
