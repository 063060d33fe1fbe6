"""The control group of one command: to freeze it by, to hold it on its CPUs, to bound its memory and its processes.

Raises Unusable with the kind's name where the machine has no version 2 group, or no such controller, for us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sandbox.contract import Command
from sandbox.errors import Unusable
from sandbox.kernel import cgroup
from sandbox.kernel.cgroup import Group
from sandbox.kernel.freezer import Freezer, SignalFreezer
from sandbox.supervision.watching import SPARE_MEMORY, SPARE_TASKS

Kind = Literal["groups", "cpusets", "limits"]
WITHOUT: Mapping[str, str] = {  # what does not hold where there is no such group, for `Promises.notes`
    "groups": "freezing is by signals, and CPU time is counted in steps of 10 ms",
    "cpusets": "CPUs are assigned but not enforced: a command can give itself more",
    "limits": "memory and processes are watched and ended when they pass a limit, not held back by the kernel",
}
EVERY_KIND: frozenset[Kind] = frozenset({"groups", "cpusets", "limits"})
_LEAST_NEEDED_FIRST: tuple[Kind, ...] = ("limits", "cpusets", "groups")


class CpuLimit(Protocol):
    """What holds a command on some CPUs, whatever affinity it asks for."""

    def allow(self, cpus: tuple[int, ...]) -> None:
        """Raises: OSError when none of them is there."""


@dataclass(frozen=True)
class ControlGroups:
    """What a command is frozen by, and held by; `memory_events` counts what the kernel kills for want of memory."""

    freezer: Freezer
    cpuset: CpuLimit | None = None
    memory_events: Path | None = None

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.freezer.folder,) if isinstance(self.freezer, Group) else ()

    @property
    def join(self) -> list[str]:
        """Files into which the command writes 0 before it runs."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def close(self) -> None:
        if isinstance(self.freezer, Group):
            self.freezer.close()


def make(name: str, command: Command, wanted: frozenset[Kind]) -> ControlGroups:
    """Raises: Unusable; what was made until then is undone."""
    if "groups" not in wanted:
        if wanted:
            raise Unusable(min(wanted), "no control group is used")
        return ControlGroups(SignalFreezer())
    with contextlib.ExitStack() as undo:
        with _unusable("groups", "no control group can be made"):
            home = cgroup.home()
            if home is None:
                raise FileNotFoundError("there is no version 2 hierarchy of control groups")
            group = Group(home / name)
            undo.callback(group.close)
        if "cpusets" in wanted:
            with _unusable("cpusets", "no CPU set can be made"):
                group.need("cpuset.cpus")
                if command.cpus is not None:
                    group.allow(command.cpus)
        if "limits" in wanted:
            memory, tasks = command.limits.memory_bytes, command.limits.processes
            with _unusable("limits", "the kernel cannot be told to limit memory and processes"):
                group.need("memory.max", "pids.max")
                group.limit(
                    None if memory is None else memory + SPARE_MEMORY, None if tasks is None else tasks + SPARE_TASKS
                )
        undo.pop_all()
    events = group.folder / "memory.events" if "limits" in wanted else None
    return ControlGroups(group, group if "cpusets" in wanted else None, events)


def settle(attempt: Callable[[frozenset[Kind]], None]) -> None:
    """Attempt it with fewer kinds until it succeeds, the least needed given up first. Raises: what `attempt` raises."""
    kinds = EVERY_KIND
    while True:
        try:
            return attempt(kinds)
        except Unusable as failure:
            # one that cannot be joined does not tell which it is
            given_up = next((k for k in _LEAST_NEEDED_FIRST if k in kinds and failure.stage in ("group", k)), None)
            if given_up is None:
                raise
            kinds -= {given_up}


def notes(kinds: frozenset[Kind]) -> list[str]:
    """What does not hold with these kinds alone."""
    return [WITHOUT[kind] for kind in sorted(EVERY_KIND - kinds)]


@contextlib.contextmanager
def _unusable(kind: Kind, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(kind, f"{what}: {error.strerror or error}") from error
