"""Start one command under a supervisor: a folder with its channel, a record on the disk, its control groups.

All of it is undone when anything fails. How the command is isolated is for the provider.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.contract import Command, Ended
from sandbox.errors import DiskFull, SandboxError, Unusable, means_disk_full
from sandbox.supervision import control_groups, disk, user_ids
from sandbox.supervision.control_groups import ControlGroups, Kind
from sandbox.supervision.process import SupervisedProcess, Tree
from sandbox.supervision.records import Identity, Record
from sandbox.supervision.spawner import Supervisor
from sandbox.supervision.supervisor import Order
from sandbox.supervision.watching import Bounds


@dataclass(frozen=True)
class Place:
    """Where commands of one sandbox are started from.

    `scratch` is a folder of the agent alone. `owned` are further folders that the agent made: what lies in them is made
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
class Starting:
    """A command that is prepared. `uid` is a user id that nothing but this command has."""

    name: str
    command: Command
    uid: int | None
    groups: ControlGroups
    record: Record
    _listener: socket.socket
    _connect_timeout_s: float
    undo: ExitStack

    @property
    def channel(self) -> Path:
        return Path(self.record.channel)

    def bounds(self, memory_events: Path | None) -> Bounds:
        """What is looked at from outside while the command runs."""
        limits = self.command.limits
        return Bounds(
            memory_bytes=limits.memory_bytes,
            processes=limits.processes,
            output_bytes=limits.output_bytes,
            disk_bytes=limits.disk_bytes,
            free_disk_bytes=limits.free_disk_bytes,
            writable=[str(folder) for folder in self.command.writable],
            memory_events=None if memory_events is None else str(memory_events),
        )

    def order(self, argv: list[str], cwd: Path, env: Mapping[str, str]) -> Order:
        """For the usual supervisor, to run this with the command's limits and in its control groups."""
        limits, cpus = self.command.limits, self.command.cpus
        return Order(
            host_pid=os.getpid(),
            argv=argv,
            cwd=str(cwd),
            env=dict(env),
            bounds=self.bounds(self.groups.memory_events),
            cpus=None if cpus is None else list(cpus),
            file_bytes=limits.file_bytes,
            # the kernel counts them per user: it means nothing for a user who has other processes
            processes=None if self.uid is None else limits.processes,
            join=self.groups.join,
            litter=self.record.litter,
        )

    def running(
        self,
        supervisor: Supervisor,
        tree: Tree,
        groups: ControlGroups | None = None,
        complete: Callable[[Ended], Ended] = lambda ended: ended,
    ) -> SupervisedProcess:
        """The command, which has been executed. `complete` says more of its end, and ends what no signal of ours does.

        Raises: OSError.
        """
        record = self.record.naming(supervisor.pid)
        held = self.groups if groups is None else groups
        process = SupervisedProcess(
            record, supervisor, tree, self._listener, held, self._connect_timeout_s, complete, self.uid
        )
        self.undo.pop_all()
        self.undo.callback(process.stop)  # until what is needed to end it later is on the disk
        record.write()
        self.undo.pop_all()
        return process


@contextlib.contextmanager
def starting(
    command: Command, place: Place, uid: int | None, kinds: frozenset[Kind] = frozenset()
) -> Iterator[Starting]:
    """Prepare it, with control groups of these kinds. Raises: Unusable, DiskFull, SandboxError."""
    name = fresh_name()
    with disk_errors(f"starting {command.role}"), ExitStack() as undo:
        if not command.cwd.is_dir():
            raise Unusable("folder", f"there is no folder {command.cwd} to start {command.role} in")
        place.make(for_others=uid is not None)
        for folder in command.writable:
            room = disk.room(str(folder))
            if room is not None and room.below(command.limits.free_disk_bytes):
                raise OSError(errno.ENOSPC, f"{folder} has {room.free_bytes >> 20} MiB left")
        groups = control_groups.make(name, command, kinds)
        undo.callback(groups.close)
        folder, listener = _bound(place.scratch / name, undo)
        if uid is not None:
            user_ids.hand_over(uid, command, place.owned)
            user_ids.give(folder, uid)
        record = Record(
            path=place.records / f"{name}.json",
            role=command.role,
            agent=Identity.of_living(os.getpid()),
            folder=folder,
            channel=str(folder / "channel"),
            groups=groups.folders,
        )
        record.write()
        undo.callback(record.forget)
        yield Starting(name, command, uid, groups, record, listener, place.connect_timeout_s, undo)


def fresh_name() -> str:
    return f"ratchet-{os.getpid()}-{secrets.token_hex(8)}"


def _bound(folder: Path, undo: ExitStack) -> tuple[Path, socket.socket]:
    """The channel in this new folder, or in a temporary one if its path is too long for one, or it holds no sockets.

    Raises: OSError, when it cannot be made in either.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    undo.callback(listener.close)
    folder.mkdir(mode=0o700)
    try:
        listener.bind(str(folder / "channel"))
    except OSError:  # some file systems of networks and virtual machines hold no sockets
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="ratchet-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        listener.bind(str(folder / "channel"))
    else:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
    listener.listen(1)
    return folder, listener


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
