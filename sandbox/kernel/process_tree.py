"""Process trees as the kernel tells them: descendants, threads, resident memory and CPU time, read from /proc.

Reads only. Standard library only, because the supervisor uses it too.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of linux/posix-timers.h: user and system time of all threads
_DEAD = "ZX"
_CANNOT_RUN = "TtZXx"


class Stat(NamedTuple):
    """What /proc/<pid>/stat says about a process, or about one thread of it. Times are in clock ticks."""

    pid: int
    state: str
    parent: int
    own_ticks: int  # user and system, of the whole process when it was read for a process
    waited_ticks: int  # of the children it has waited for, and theirs
    nice: int
    threads: int
    started_ticks: int  # since boot: with the pid it names a process for good
    policy: int

    @property
    def alive(self) -> bool:
        # a main thread may end while others run on: the leader is then a zombie of a living process
        return self.state not in _DEAD or self.threads > 1

    @property
    def cannot_run(self) -> bool:
        return self.state in _CANNOT_RUN


def _read(path: str) -> bytes:
    """The file, empty when its process is gone or closed to us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def stat(pid: int, tid: int | None = None) -> Stat | None:
    """A process, or one of its threads; None when it is gone."""
    text = _read(f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat")
    if not text:
        return None
    # the name of a process may hold spaces and brackets, so count from the last bracket
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(
        pid=pid if tid is None else tid,
        state=chr(fields[0][0]),
        parent=int(fields[1]),
        own_ticks=int(fields[11]) + int(fields[12]),
        waited_ticks=int(fields[13]) + int(fields[14]),
        nice=int(fields[16]),
        threads=int(fields[17]),
        started_ticks=int(fields[19]),
        policy=int(fields[38]),
    )


def every_process() -> dict[int, Stat]:
    found = (stat(int(name)) for name in _names("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def descendants(root: int, processes: dict[int, Stat] | None = None) -> list[int]:
    """Everything below `root`, zombies included, `root` not; from a scan of all processes, so nothing hides."""
    children: dict[int, list[int]] = {}
    for process in (every_process() if processes is None else processes).values():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def descendants_quickly(root: int) -> list[int]:
    """Like `descendants`, from the kernel's lists of children: a tenth of a millisecond for a small tree.

    The lists may miss a sibling of a process that ends while they are read, so a caller that must not be wrong
    asks again until nothing changes, or uses `descendants`.
    """
    if not _HAS_CHILDREN_LISTS:
        return descendants(root)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children_quickly(waiting.pop())
        found += below
        waiting += below
    return found


def children_quickly(pid: int) -> list[int]:
    if not _HAS_CHILDREN_LISTS:
        return [process.pid for process in every_process().values() if process.parent == pid]
    return [child for tid in threads(pid) for child in children_of_thread(pid, tid)]


def children_of_thread(pid: int, tid: int) -> list[int]:
    """What this thread has started; of all threads of its process where the kernel has no lists of children."""
    if not _HAS_CHILDREN_LISTS:
        return children_quickly(pid)
    return [int(child) for child in _read(f"/proc/{pid}/task/{tid}/children").split()]


_HAS_CHILDREN_LISTS = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in _names(f"/proc/{pid}/task")]
    except OSError:
        return []


def _names(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def ran_ns(pids: Iterable[int]) -> dict[int, int]:
    """How long every thread of these has been on a CPU, by its id; nothing where the kernel keeps no such account.

    A thread says that it is stopped while it is still on its CPU, and what it ran since the last tick of the clock is
    counted when it leaves it. The kernel waits for that (wait_task_inactive) when it is asked in which system call a
    stopped thread is, which takes the right to trace it.
    """
    found = {}
    for pid in pids:
        for tid in threads(pid):
            _read(f"/proc/{pid}/task/{tid}/syscall")
            words = _read(f"/proc/{pid}/task/{tid}/schedstat").split()
            if words:
                found[tid] = int(words[0])
    return found


def allowed_cpus(pid: int, tid: int) -> frozenset[int]:
    value = _fields(_read(f"/proc/{pid}/task/{tid}/status"), (b"Cpus_allowed_list:",)).get(b"Cpus_allowed_list:", b"")
    return frozenset(parse_cpu_list(value.decode()))


def parse_cpu_list(text: str) -> list[int]:
    """`0-2,5` as the kernel writes it."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus += range(int(first), int(last or first) + 1)
    return cpus


def _fields(text: bytes, names: Iterable[bytes]) -> dict[bytes, bytes]:
    lines = (line.partition(b"\t") if b"\t" in line else line.partition(b" ") for line in text.splitlines())
    wanted = set(names)
    return {name: value.strip() for name, _, value in lines if name in wanted}


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that these processes hold and nobody could drop: anonymous, shared and swapped pages, files left out.

    What processes share after a fork counts once for each of them, so this is an upper bound.
    """
    return sum(map(_resident_bytes, pids))


_SAMPLE = 6  # processes looked at whatever time it takes: of fewer one that is unlike the others would decide


def proportional_bytes(pids: Iterable[int], *, within_s: float = math.inf) -> int:
    """The same with shared pages shared out, which takes 12 ms for a process of 400 MiB.

    What it has no time for is taken to share as much as what it looked at: the largest process, which may be the one
    that all others were forked from, and then others by chance, so that nobody can arrange which. A process whose
    shares the kernel does not tell counts with all it holds.
    """
    deadline = time.monotonic() + within_s
    waiting = {pid: _resident_bytes(pid) for pid in pids}
    largest = max(waiting, key=waiting.__getitem__, default=None)
    order = sorted(waiting, key=lambda pid: (pid != largest, os.urandom(8)))
    first = sampled = sampled_resident = 0
    for place, pid in enumerate(order):
        if place >= _SAMPLE and time.monotonic() > deadline:
            break
        resident = waiting.pop(pid)
        found = _memory(pid, "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:"))
        exact = resident if found is None else found
        if place == 0:
            first = exact
        else:
            sampled, sampled_resident = sampled + exact, sampled_resident + resident
    rest = sum(waiting.values())
    return first + sampled + (rest * sampled // sampled_resident if sampled_resident else rest)


def _resident_bytes(pid: int) -> int:
    return _memory(pid, "status", (b"RssAnon:", b"RssShmem:", b"VmSwap:")) or 0


def _memory(pid: int, file: str, names: tuple[bytes, ...]) -> int | None:
    found = _fields(_read(f"/proc/{pid}/{file}"), names)
    if not found:
        # a leader that ended has let go of its memory; the threads that run on still show it
        for tid in threads(pid):
            found = _fields(_read(f"/proc/{pid}/task/{tid}/{file}"), names)
            if found:
                break
    return sum(int(value.split()[0]) * 1024 for value in found.values()) if found else None


def cpu_time_s(root: int, ours: Iterable[int], processes: dict[int, Stat]) -> float:
    """User and system time of `root` and everything below it, ended and waited-for children included.

    Of `ours` their own time is left out, that of the orphans they waited for is not. Children waited for count in
    ticks of 10 ms; those that a process ignored (SIGCHLD set to ignore) are missed.
    """
    ours = set(ours)
    used_s = 0.0
    for pid in {root, *descendants(root, processes)}:
        process = processes.get(pid)
        if process is not None:
            used_s += process.waited_ticks / _TICKS_PER_S + (0 if pid in ours else _own_s(process))
    return used_s


def _own_s(process: Stat) -> float:
    """To the nanosecond: rounded to ticks, each process of a tree would add an error of its own."""
    try:
        return time.clock_gettime((~process.pid << 3) | _CPU_CLOCK)  # clock_getcpuclockid(3)
    except OSError:  # it has ended since
        return process.own_ticks / _TICKS_PER_S
