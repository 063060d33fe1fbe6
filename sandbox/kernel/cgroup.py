"""Control groups of our own: made below the agent's group, entered by one command, frozen, killed and removed.

Refuses to move the agent itself or to switch controllers on: what is not there for us stays unused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.kernel.process_tree import parse_cpu_list


def unified_home() -> Path | None:
    """The agent's own group in the version 2 hierarchy; None where there is none. Core features need no controller."""
    return _home("cgroup2", "")


def cpuset_home() -> Path | None:
    """The agent's own group in the version 1 hierarchy of the cpuset controller, None where there is none."""
    return _home("cgroup", "cpuset")


def _home(kind: str, controller: str, pid: int | None = None) -> Path | None:
    path = _path(controller, pid)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, mount_point = before.split()[3:5]
        found_kind, _, options = after.split(maxsplit=2)
        if path is None or found_kind != kind or (controller and controller not in options.split(",")):
            continue
        # inside a container the mount may show only a part of the hierarchy
        if path == root or root == "/" or path.startswith(root + "/"):
            return Path(mount_point) / path.removeprefix(root).lstrip("/")
    return None


def _path(controller: str, pid: int | None) -> str | None:
    try:
        lines = Path(f"/proc/{pid or 'self'}/cgroup").read_text().splitlines()
    except FileNotFoundError:
        return None  # it has ended
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and not path.startswith("/.."):
            return path
    return None


def memory_events_of(pid: int) -> Path | None:
    """Where the kernel counts what it kills in the group of this process, which is not the agent's, for want of memory.

    None where it is hidden, or where the group is the agent's own.
    """
    for kind, controller, name in (("cgroup2", "", "memory.events"), ("cgroup", "memory", "memory.oom_control")):
        home = _home(kind, controller, pid)
        if home is not None and home != _home(kind, controller) and (home / name).exists():
            return home / name
    return None


def killed_for_memory(events: Path) -> int:
    """How many processes the kernel says it has killed, in such a file; none when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = events.read_text().split()
        return int(words[words.index("oom_kill") + 1])
    return 0


class Group:
    """A version 2 group. Raises OSError from its constructor when it cannot be made here."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        try:
            self._freeze = os.open(folder / "cgroup.freeze", os.O_WRONLY | os.O_CLOEXEC)
            self._events = os.open(folder / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            folder.rmdir()
            raise

    @property
    def join_file(self) -> Path:
        return self.folder / "cgroup.procs"

    def freeze(self, *, patience_s: float = 5.0) -> None:
        """Returns when no task of the group can run. Raises: SandboxError."""
        os.pwrite(self._freeze, b"1", 0)
        deadline = time.monotonic() + patience_s
        while not self.frozen():
            if time.monotonic() > deadline:
                raise SandboxError(f"a task of {self.folder.name} is stuck in the kernel and could not be frozen")
            time.sleep(0.00002)  # it takes microseconds; the kernel's own notice comes up to 10 ms late

    def frozen(self) -> bool:
        return b"frozen 1" in os.pread(self._events, 256, 0)

    def thaw(self) -> None:
        os.pwrite(self._freeze, b"0", 0)

    def members(self) -> list[int]:
        return _members(self.folder)

    def cpu_time_s(self) -> float:
        """User and system time of all tasks that ever were in it, to the microsecond."""
        words = (self.folder / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6

    def has(self, file: str) -> bool:
        """Whether whoever set up the machine has switched on the controller that this file belongs to."""
        return (self.folder / file).exists()

    def close(self) -> None:
        os.close(self._freeze)
        os.close(self._events)
        end_group(self.folder)


class CpuSet:
    """CPUs that tasks cannot leave, whatever affinity they ask for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def within(cls, group: Group | None, name: str) -> CpuSet:
        """On a version 2 group that has the controller, or else a version 1 group `name`. Raises: OSError."""
        if group is not None and group.has("cpuset.cpus"):
            return cls(group.folder)
        home = cpuset_home()
        if home is None:
            raise FileNotFoundError("no cpuset controller is there for us")
        return cls._create(home / name)

    @classmethod
    def _create(cls, folder: Path) -> CpuSet:
        """A version 1 group of its own, with the CPUs and memory of its parent."""
        folder.mkdir()
        try:
            for name in ("cpuset.mems", "cpuset.cpus"):  # both must be set before a task may enter
                (folder / name).write_text((folder.parent / name).read_text())
        except OSError:
            folder.rmdir()
            raise
        return cls(folder)

    @property
    def join_file(self) -> Path:
        return self.folder / "cgroup.procs"

    def allow(self, cpus: Iterable[int]) -> None:
        """Raises: OSError when none of them is there."""
        (self.folder / "cpuset.cpus").write_text(",".join(str(cpu) for cpu in cpus))

    def allowed(self) -> frozenset[int]:
        return frozenset(parse_cpu_list((self.folder / "cpuset.cpus").read_text()))

    def close(self) -> None:
        end_group(self.folder)


class Ceiling:
    """The kernel's own limits on all memory, also what no process maps, and on all tasks of what is in a group."""

    def __init__(self, folders: tuple[Path, ...], memory_events: Path) -> None:
        self._folders, self.memory_events = folders, memory_events

    @classmethod
    def within(cls, group: Group | None, name: str, *, memory_bytes: int | None, tasks: int | None) -> Ceiling:
        """On a version 2 group that has the controllers, or else version 1 groups `name`; None is no limit.

        Raises: OSError.
        """
        if group is not None and group.has("memory.max") and group.has("pids.max"):
            _limit(group.folder, {"memory.max": memory_bytes, "memory.swap.max": 0, "pids.max": tasks})
            return cls((group.folder,), group.folder / "memory.events")
        made: list[Path] = []
        # the second counts memory and swap together: equal to the first it leaves no swap
        memory = {"memory.limit_in_bytes": memory_bytes, "memory.memsw.limit_in_bytes": memory_bytes}
        try:
            for controller, limits in (("memory", memory), ("pids", {"pids.max": tasks})):
                home = _home("cgroup", controller)
                if home is None:
                    raise FileNotFoundError(f"no {controller} controller is there for us")
                (home / name).mkdir()
                made.append(home / name)
                _limit(home / name, limits)
        except OSError:
            for folder in made:
                folder.rmdir()
            raise
        return cls(tuple(made), made[0] / "memory.oom_control")

    @property
    def join(self) -> tuple[Path, ...]:
        return tuple(folder / "cgroup.procs" for folder in self._folders)

    def close(self) -> None:
        for folder in self._folders:
            end_group(folder)


def _limit(folder: Path, limits: Mapping[str, int | None]) -> None:
    for name, most in limits.items():
        if most is not None and (folder / name).exists():  # machines that account no swap have no file for it
            (folder / name).write_text(str(most))


def end_group(folder: Path, *, patience_s: float = 5.0) -> list[int]:
    """Kill what is in a group and remove it; returns the processes that were in it. Nothing happens if it is gone."""
    killed: list[int] = []
    deadline = time.monotonic() + patience_s
    while folder.is_dir():
        with contextlib.suppress(OSError):
            members = _members(folder)
            killed += [pid for pid in members if pid not in killed]
            _kill(folder, members)
        with contextlib.suppress(OSError):  # busy until the last of them is buried
            folder.rmdir()
            break
        if time.monotonic() > deadline:
            break
        time.sleep(0.002)
    return killed


def _members(folder: Path) -> list[int]:
    # a process that our pid namespace does not show is listed as 0, and a signal to 0 would hit ourselves
    return [int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0"]


def _kill(folder: Path, members: list[int]) -> None:
    if not members:
        return
    try:
        (folder / "cgroup.kill").write_text("1")
    except OSError:  # before Linux 5.14, or version 1
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
