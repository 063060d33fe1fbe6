"""What every started command needs on the host before it runs: a folder with its channel, and a record on the disk.

The caller undoes it when starting fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.contract import Command
from sandbox.errors import DiskFull, SandboxError, Unusable, means_disk_full
from sandbox.supervision import disk, user_ids
from sandbox.supervision.records import Filed, Identity, Record
from sandbox.supervision.watching import Bounds

_LONGEST_SOCKET_PATH = 100  # the kernel takes 107 bytes


@dataclass(frozen=True)
class Place:
    """Where commands of one sandbox are started from.

    `scratch` is a folder of ours alone. `owned` are further folders that the agent made: what lies in them is made
    readable for a separate user who needs it; nothing else has its mode changed.
    """

    scratch: Path
    owned: tuple[Path, ...]
    connect_timeout_s: float

    @property
    def records(self) -> Path:
        return self.scratch / "records"

    def make(self, *, for_others: bool) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        # a separate user must pass through, but not list: the folders inside have unguessable names and are closed
        self.scratch.chmod(0o711 if for_others else 0o700)
        self.records.mkdir(mode=0o700, exist_ok=True)


@dataclass(frozen=True)
class Prepared:
    listener: socket.socket
    filed: Filed

    @property
    def litter(self) -> list[str]:
        """Files and folders to remove, in this order, when the agent is gone and cannot."""
        record = self.filed.record
        return [str(path) for path in (record.channel, record.folder, self.filed.log, self.filed.path)]


def bounds_of(command: Command, memory_events: Path | None) -> Bounds:
    """What is looked at from outside while the command runs."""
    limits = command.limits
    return Bounds(
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        output_bytes=limits.output_bytes,
        disk_bytes=limits.disk_bytes,
        free_disk_bytes=limits.free_disk_bytes,
        writable=[str(folder) for folder in command.writable],
        memory_events=None if memory_events is None else str(memory_events),
    )


def fresh_name() -> str:
    return f"ratchet-{os.getpid()}-{secrets.token_hex(8)}"


def prepare(
    name: str, command: Command, place: Place, uid: int | None, undo: ExitStack, groups: tuple[Path, ...] = ()
) -> Prepared:
    """`uid` is who will connect, if not ourselves; `groups` are control groups to remove with it.

    Raises: Unusable, OSError.
    """
    for folder in command.writable:
        room = disk.room(str(folder))
        if room is not None and room.below(command.limits.free_disk_bytes):
            raise OSError(errno.ENOSPC, f"{folder} has {room.free_bytes >> 20} MiB left")
    folder, listener = _bound(_private_folders(place.scratch, name), undo)
    if uid is not None:
        user_ids.give(folder, uid)
    agent = Identity.of_living(os.getpid())
    record = Record(role=command.role, agent=agent, folder=folder, channel=str(folder / "channel"), groups=groups)
    filed = Filed(place.records / f"{name}.json", record)
    filed.write()
    undo.callback(filed.forget)
    return Prepared(listener, filed)


def _private_folders(scratch: Path, name: str) -> Iterator[Path]:
    """Where the channel may lie: in a folder of ours, or in a temporary one if that is too deep or holds no sockets."""
    folder = scratch / name
    if len(os.fsencode(folder / "channel")) <= _LONGEST_SOCKET_PATH:
        folder.mkdir(mode=0o700)
        yield folder
    yield Path(tempfile.mkdtemp(prefix="ratchet-"))


def _bound(folders: Iterator[Path], undo: ExitStack) -> tuple[Path, socket.socket]:
    """Raises: OSError of the last folder, when no channel can be made in any."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    undo.callback(listener.close)
    failure: OSError | None = None
    for folder in folders:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            listener.bind(str(folder / "channel"))
        except OSError as error:  # some file systems of networks and virtual machines hold no sockets
            failure = error
            shutil.rmtree(folder, ignore_errors=True)
            continue
        listener.listen(1)
        return folder, listener
    assert failure is not None, "there is at least one folder"
    raise failure


@contextlib.contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Raises: DiskFull, SandboxError instead of OSError."""
    hint = "Free some space; nothing already proven is lost."
    elsewhere = "If that folder is at fault, name another with --runs-dir, or with the variable TMPDIR."
    try:
        yield
    except Unusable as failure:
        if means_disk_full(failure.error_number):
            raise DiskFull(failure.message, hint=hint) from failure
        raise
    except OSError as error:
        if means_disk_full(error.errno):
            raise DiskFull(f"the disk is full while {doing}: {error}", hint=hint) from error
        raise SandboxError(f"{doing} failed: {error}", hint=elsewhere) from error
