"""One lock for each card of this machine, so that no two runs time on the same one, whichever user started them.

It is no boundary: it binds those who ask for it, where they see the same folders, which two containers do not.
A user who may write the folder can hold a lock without end. No one can make us write to another user's file, and the
content of a lock file is not trusted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sandbox.devices.record import Gpu
from sandbox.errors import DeviceBusy, SandboxError

# Every user must come to the same ones, so TMPDIR, which is often a user's or a job's own, has no say. The first is
# open to all on Debian and Ubuntu and to root alone elsewhere; a user who can use both locks both, and so meets all.
FOLDERS = (Path("/run/lock/ratchet"), Path("/tmp/ratchet-locks"))
_FOLDER_MODE = 0o1777
_FILE_MODE = 0o666
_POLL_S = 0.05
_TRIES = 100  # a file can appear and vanish between two looks, but not without end
_MOST_BYTES = 4096


def reaches_other_containers(folders: Sequence[Path] = FOLDERS) -> bool:
    """Whether a container was given one of these folders from outside, where runs in others can meet it.

    Each container has a `/run/lock` and its own `/tmp` otherwise, so its locks are seen nowhere else.
    """
    return any(os.path.ismount(folder) for folder in folders)


class DeviceLock(contextlib.AbstractContextManager["DeviceLock"]):
    """A card that is ours until `release`, the end of a `with` block, or the end of this process, however it comes.

    The kernel drops it with the last descriptor. No program that this process starts inherits one; a plain fork does,
    and would hold the lock beyond a parent that died without releasing it.
    """

    def __init__(self, held: Mapping[Path, int]) -> None:
        self.paths = tuple(held)
        self._descriptors = list(held.values())

    def release(self) -> None:
        """Idempotent. The files stay: to remove one would let two processes lock two files of one name."""
        while self._descriptors:
            descriptor = self._descriptors.pop()
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for what one of our forks still has open
            os.close(descriptor)

    def __exit__(self, *_: object) -> None:
        self.release()


class _HeldBy(Exception):
    """Another process has the lock; the message says which."""


def acquire(gpu: Gpu, wait_s: float = 0.0, *, run_id: str = "", folders: Sequence[Path] = FOLDERS) -> DeviceLock:
    """Lock the card of this GPU, with all its dies and partitions: they share power, and timings would show it.

    `run_id` is for the message that others get. `folders` are those of the machine except in tests.
    Raises: DeviceBusy when it is still held after `wait_s` seconds; SandboxError when no folder can be used.
    """
    name = re.sub(r"[^0-9a-z.]", "-", f"{gpu.vendor}-{gpu.card}") + ".lock"
    says = {"pid": os.getpid(), "run": run_id, "since": datetime.now(UTC).isoformat(timespec="seconds")}
    deadline = time.monotonic() + wait_s
    while True:
        try:
            held = _lock_all(folders, name, says)
            if not held and folders is FOLDERS:  # a lock among the runs of one user is better than none
                held = _lock_all((Path(tempfile.gettempdir()) / "ratchet-locks",), name, says)
            break
        except _HeldBy as holder:
            if time.monotonic() >= deadline:
                message = f"{gpu.name} at {gpu.card} is in use by {holder}"
                raise DeviceBusy(message, hint="Wait for it, choose another GPU, or end that run.") from None
        time.sleep(_POLL_S)
    if not held:
        places = " or ".join(str(folder) for folder in folders)
        hint = f"Let an administrator make {folders[0]} a folder, not a link, of mode 1777."
        raise SandboxError(f"{gpu.card} cannot be kept from other runs: no lock can be made in {places}", hint=hint)
    return DeviceLock(held)


def _lock_all(folders: Sequence[Path], name: str, says: Mapping[str, object]) -> dict[Path, int]:
    """Descriptors of the locked file in every folder that can be used. Raises: _HeldBy, and then keeps none."""
    held: dict[Path, int] = {}
    with contextlib.ExitStack() as unless_done:
        for folder in folders:
            with contextlib.suppress(OSError), _opened(folder) as inside:
                held[folder / name] = descriptor = _lock(inside, name)
                unless_done.callback(os.close, descriptor)
        unless_done.pop_all()
    for descriptor in held.values():
        with contextlib.suppress(OSError):  # it explains, and holds nothing
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(says).encode() + b"\n", 0)
    return held


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder, made if it is not there. Raises: OSError when it is a link, or others could replace files in it."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(_FOLDER_MODE)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if facts.st_uid == os.geteuid():
            os.fchmod(descriptor, _FOLDER_MODE)  # whatever the umask was
        elif not facts.st_mode & stat.S_ISVTX:
            raise OSError(errno.EPERM, "it belongs to another user and has no sticky bit")
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(inside: int, name: str) -> int:
    """Raises: _HeldBy; OSError when the file cannot be made, or is not what it must be."""
    for _ in range(_TRIES):
        with contextlib.ExitStack() as unless_done:
            try:
                descriptor = _open(inside, name)
                unless_done.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                named = os.stat(name, dir_fd=inside, follow_symlinks=False)
            except BlockingIOError:
                raise _HeldBy(_holder(descriptor)) from None
            except (FileExistsError, FileNotFoundError):
                continue
            if os.path.samestat(os.fstat(descriptor), named):  # else it was replaced meanwhile
                unless_done.pop_all()
                return descriptor
    raise OSError(errno.EBUSY, "its lock file is replaced again and again")


def _open(inside: int, name: str) -> int:
    """The lock file, made if it is not there: in two steps.

    In a sticky folder the kernel may refuse to open a file of another user with O_CREAT (`fs.protected_regular`,
    kernel documentation, "Documentation for /proc/sys/fs/"). Raises: OSError.
    """
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last one for a pipe in its place
    try:
        descriptor = os.open(name, flags | os.O_RDWR, dir_fd=inside)
    except PermissionError:
        descriptor = os.open(name, flags | os.O_RDONLY, dir_fd=inside)  # enough to lock it, not to sign it
    except FileNotFoundError:
        descriptor = os.open(name, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE, dir_fd=inside)
        os.fchmod(descriptor, _FILE_MODE)  # whatever the umask is: others must be able to lock it
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EPERM, f"{name} is no file of its own")
    return descriptor


def _holder(descriptor: int) -> str:
    """What the holder wrote about itself, fit to be shown; anybody may have written it."""
    try:
        says = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
    except (OSError, ValueError, RecursionError):
        says = None
    if not isinstance(says, dict):
        return "another process"
    pid, run, since = (_shown(says.get(key)) for key in ("pid", "run", "since"))
    return f"{f'run {run}' if run else 'another run'} (process {pid or '?'}, since {since or '?'})"


def _shown(value: object) -> str:
    return "".join(sign for sign in str(value or "")[:80] if sign.isprintable())
