"""The control groups of one command: to freeze it by, to hold it on its CPUs, to bound its memory and its processes.

Refuses to choose which are wanted. Raises Unusable with the kind's name when the machine has none for us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sandbox.contract import Command
from sandbox.errors import Unusable
from sandbox.kernel import cgroup, freezer
from sandbox.kernel.freezer import CgroupFreezer, Freezer
from sandbox.supervision.watching import SPARE_MEMORY, SPARE_TASKS

Kind = Literal["groups", "cpusets", "limits"]
WITHOUT: Mapping[str, str] = {  # what does not hold where there is no such group, for `Promises.notes`
    "groups": "freezing is by signals, and CPU time is counted in steps of 10 ms",
    "cpusets": "CPUs are assigned but not enforced: a command can give itself more",
    "limits": "memory and processes are watched and ended when they pass a limit, not held back by the kernel",
}
EVERY_KIND: frozenset[Kind] = frozenset({"groups", "cpusets", "limits"})


class CpuLimit(Protocol):
    """What holds a command on some CPUs, whatever affinity it asks for."""

    def allow(self, cpus: tuple[int, ...]) -> None:
        """Raises: OSError when none of them is there."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class ControlGroups:
    """What a command is frozen by, and held by. `join` are files into which it writes 0 before it runs."""

    freezer: Freezer
    cpuset: CpuLimit | None = None
    ceiling: cgroup.Ceiling | None = None
    join: tuple[Path, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(file.parent for file in self.join)

    @property
    def memory_events(self) -> Path | None:
        """Where the kernel counts what it kills for want of memory; None when it bounds none."""
        return None if self.ceiling is None else self.ceiling.memory_events

    def close(self) -> None:
        self.freezer.close()
        for each in (self.cpuset, self.ceiling):
            if each is not None:
                each.close()


def make(name: str, command: Command, wanted: frozenset[Kind]) -> ControlGroups:
    """Raises: Unusable; what was made until then is undone."""
    with contextlib.ExitStack() as undo:
        with _unusable("groups", "no control group can be made"):
            chosen = freezer.choose(name, groups="groups" in wanted)
        undo.callback(chosen.close)
        group = chosen.group if isinstance(chosen, CgroupFreezer) else None
        cpuset, ceiling = None, None
        if "cpusets" in wanted:
            with _unusable("cpusets", "no CPU set can be made"):
                cpuset = cgroup.CpuSet.within(group, name)
                undo.callback(cpuset.close)
                if command.cpus is not None:
                    cpuset.allow(command.cpus)
        if "limits" in wanted:
            limits = command.limits
            memory = None if limits.memory_bytes is None else limits.memory_bytes + SPARE_MEMORY
            tasks = None if limits.processes is None else limits.processes + SPARE_TASKS
            with _unusable("limits", "the kernel cannot be told to limit memory and processes"):
                ceiling = cgroup.Ceiling.within(group, name, memory_bytes=memory, tasks=tasks)
        undo.pop_all()
    cpuset_join = () if cpuset is None else (cpuset.join_file,)
    join = (*chosen.join, *cpuset_join, *(() if ceiling is None else ceiling.join))
    return ControlGroups(chosen, cpuset, ceiling, tuple(dict.fromkeys(join)))


@contextlib.contextmanager
def _unusable(kind: Kind, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(kind, f"{what}: {error.strerror or error}") from error
