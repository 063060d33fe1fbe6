"""The sandbox contract: start a process, talk to it on a private channel, freeze it, end it with all its children.

Does not know anything about torch, candidates or timing. A command that fails is a result (`Ended`); only a
sandbox that broke is an exception (`SandboxError`). Paths are the same inside and outside, so nobody maps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Protocol

from sandbox.guest.wire import Channel


@dataclass(frozen=True)
class Limits:
    """What one process tree may use. `None` means no limit is asked for."""

    memory_bytes: int | None = None  # resident memory of the whole tree
    processes: int | None = 4096  # threads and processes of the whole tree
    output_bytes: int = 16 << 20  # stdout and stderr together; beyond it the tree is ended
    file_bytes: int | None = None  # size of any one file it writes
    disk_bytes: int | None = None  # the files in its writable folders together
    # of each file system that holds a writable folder; when less is free the tree is ended, and none is started
    free_disk_bytes: int = 256 << 20
    tmp_bytes: int = 1 << 30  # of /tmp, where it has one of its own
    shm_bytes: int = 1 << 30  # of /dev/shm, likewise


@dataclass(frozen=True)
class Command:
    """One process to run.

    `env` is the complete environment (nothing is inherited). `readable` and `writable` are folders; everything
    else of the user's is out of reach where the provider can promise that (see `Promises`). The variable
    RATCHET_CHANNEL is added: the path of the unix socket the process must connect to first.
    """

    argv: tuple[str, ...]
    cwd: Path
    role: str
    env: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    cpus: tuple[int, ...] | None = None  # the only CPUs it may run on
    limits: Limits = Limits()
    # it may read hardware counters, which can take more rights than a contained command has: for profiling only, and
    # never for what is timed or judged
    counters: bool = False


@dataclass(frozen=True)
class Ended:
    """How a process tree ended."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}  # reports of supervisors come as this

    status: int | None  # exit status of the main process, None when a signal ended it
    signal: int | None
    # "exited", "signal", "stopped", "output limit", "memory limit", "process limit", "disk limit", "engine lost", or
    # "supervisor killed": whoever watched the tree was killed, which only code in the tree has a reason to do
    reason: str
    output_tail: str  # last 64 KiB of stdout and stderr together, undecodable bytes replaced
    output_bytes: int = 0
    cpu_time_s: float = 0.0  # user and system, of what the supervisor has waited for


@dataclass(frozen=True)
class Task:
    """One thread of the tree, as the kernel tells it."""

    pid: int
    tid: int
    cpus: frozenset[int]
    nice: int
    policy: int  # SCHED_OTHER is 0
    stopped: bool  # frozen or stopped: it cannot run


@dataclass(frozen=True)
class Usage:
    """What the whole tree is and has used, read from the kernel and not from the process."""

    tasks: tuple[Task, ...]
    cpu_time_s: float  # user + system of all threads and children, ended ones included

    @property
    def processes(self) -> int:
        return len({task.pid for task in self.tasks})


@dataclass(frozen=True)
class Promises:
    """What this provider holds on this machine; each False is said aloud in the report."""

    contained: bool
    no_network: bool
    separate_users: bool
    ends_whole_tree: bool
    enforced_cpus: bool
    kernel_limits: bool  # the kernel itself limits memory, also what no process maps, and processes
    notes: tuple[str, ...] = ()

    def by_name(self) -> dict[str, bool]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("contained", "notes")}


class ProcessEnded(Exception):
    """Raised when the other side of a channel is gone; a finding about the process, not an internal error."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"{ended.reason} (status {ended.status}, signal {ended.signal})")
        self.ended = ended


class WouldNotFreeze(Exception):
    """Raised by `freeze` and `thaw`: it did not hold still. A finding about the process, not an internal error."""


class Process(Protocol):
    """A running process tree.

    `freeze` returns only when no task of the tree can run; `thaw` undoes it, and tells when one ran all the same.
    `usage` also sees children that left the process group or the session. `stop` ends the whole tree and is
    idempotent. What asks a container engine that has gone away raises SandboxUnavailable.
    """

    role: str

    @property
    def channel(self) -> Channel:
        """The connected channel. Raises: ProcessEnded, TimeoutError (it never connected)."""

    def freeze(self) -> None:
        """Raises: WouldNotFreeze."""

    def thaw(self) -> None:
        """Raises: WouldNotFreeze, and then it has been thawed."""

    def usage(self) -> Usage: ...

    def pin(self, cpus: tuple[int, ...]) -> None: ...

    def poll(self) -> Ended | None: ...

    def wait(self, timeout_s: float) -> Ended | None: ...

    def stop(self) -> Ended: ...


class Sandbox(Protocol):
    """A provider.

    Raises: SandboxUnavailable when it cannot run here, SandboxError when starting fails for its own reasons.
    """

    name: str

    def promises(self) -> Promises: ...

    def start(self, command: Command) -> Process: ...

    def reap(self) -> list[str]:
        """End whatever an earlier, killed run of this provider left behind; returns what it ended."""
