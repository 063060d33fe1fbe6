"""Control groups (version 2) of our own: made below the agent's group, entered by one command, frozen, killed, removed.

Never moves the agent itself or switches controllers on: what is not there for us stays unused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from sandbox.contract import WouldNotFreeze
from sandbox.kernel.freezer import PATIENCE_S, Members, patience_s


def home() -> Path | None:
    """The agent's own group in the version 2 hierarchy; None where there is none. Core features need no controller."""
    return _home("cgroup2", "")


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
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has ended
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and not path.startswith("/.."):
            return path
    return None


def memory_events_of(pid: int) -> Path | None:
    """Where the kernel counts what it kills for want of memory in the group that an engine has made for this process.

    None where it is hidden, or where the group is the agent's own. Engines still use version 1 on older systems.
    """
    for kind, controller, name in (("cgroup2", "", "memory.events"), ("cgroup", "memory", "memory.oom_control")):
        found = _home(kind, controller, pid)
        if found is not None and found != _home(kind, controller) and (found / name).exists():
            return found / name
    return None


def killed_for_memory(events: Path) -> int:
    """How many processes the kernel says it has killed, in such a file; none when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = events.read_text().split()
        return int(words[words.index("oom_kill") + 1])
    return 0


class Group:
    """A `Freezer`: the kernel stops every task at once, and forks and sessions make no difference.

    Raises OSError from its constructor when it cannot be made here.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        try:
            self._freeze = os.open(folder / "cgroup.freeze", os.O_WRONLY | os.O_CLOEXEC)
            self._events = os.open(folder / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            folder.rmdir()
            raise

    def freeze(self, members: Members) -> None:
        """Returns when no task of the group can run. Raises: WouldNotFreeze."""
        os.pwrite(self._freeze, b"1", 0)
        begun = time.monotonic()
        while not self._frozen():
            if time.monotonic() - begun > patience_s():
                raise WouldNotFreeze("one of its tasks is stuck in the kernel")
            time.sleep(0.00002)  # it takes microseconds; the kernel's own notice comes up to 10 ms late

    def _frozen(self) -> bool:
        return b"frozen 1" in os.pread(self._events, 256, 0)

    def thaw(self, members: Members) -> None:
        os.pwrite(self._freeze, b"0", 0)

    def holds(self) -> frozenset[int]:
        return frozenset(_members(self.folder) if self._frozen() else ())

    def cpu_time_s(self) -> float:
        """User and system time of all tasks that ever were in it, to the microsecond."""
        words = (self.folder / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6

    def need(self, *files: str) -> None:
        """Raises: FileNotFoundError where nobody has switched on the controller that one of these belongs to."""
        for file in files:
            if not (self.folder / file).exists():
                raise FileNotFoundError(f"the {file.partition('.')[0]} controller is not there for us")

    def allow(self, cpus: Iterable[int]) -> None:
        """The only CPUs of its tasks, whatever affinity they ask for. Raises: OSError when none of them is there."""
        (self.folder / "cpuset.cpus").write_text(",".join(map(str, cpus)))

    def limit(self, memory_bytes: int | None, tasks: int | None) -> None:
        """On all memory, also what no process maps, and on all tasks; None is no limit. Raises: OSError."""
        for name, most in (("memory.max", memory_bytes), ("memory.swap.max", 0), ("pids.max", tasks)):
            if most is not None and (self.folder / name).exists():  # machines that account no swap have no file for it
                (self.folder / name).write_text(str(most))

    def close(self) -> None:
        os.close(self._freeze)
        os.close(self._events)
        end_group(self.folder)


def end_group(folder: Path) -> list[int]:
    """Kill what is in a group and remove it; returns the processes that were in it. Nothing happens if it is gone."""
    killed: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
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
    except OSError:  # before Linux 5.14
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
