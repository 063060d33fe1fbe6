"""Which CPUs start workers, which are timed on, and which are left for the host.

Does not time across NUMA nodes where one has room: a worker's memory lies where it started.
Sources: the kernel's files (docs.kernel.org, "Linux ABI testing symbols": `thread_siblings_list` of a CPU, `cpulist` of
a node, `local_cpulist` of a PCI device).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sandbox.devices import sysfs

SYS = Path("/sys")
PROBED = 32  # CPUs at most, unless more are timed on: a millisecond each, three times
LOOKS = 3
WORK = 15_000  # turns of a loop


def _seconds_on(cpu: int) -> float:
    """What a little work takes there; infinity where the CPU is no longer ours."""
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        return math.inf
    begun, total = time.perf_counter(), 0
    for number in range(WORK):
        total += number * number
    return time.perf_counter() - begun


@dataclass(frozen=True)
class Cores:
    """`cpus` are all, in order; those `timed` on are neighbours among them."""

    cpus: tuple[int, ...]
    timed: tuple[int, ...]

    @classmethod
    def of(cls, available: Collection[int], threads: int) -> Cores:
        """Timed on one core for each thread, of a GPU workload as well: with more to choose from, the thread that
        launches stays where it happened to be put, beside a busy neighbour or not, and the same code scatters.
        """
        cpus = tuple(sorted(available))
        return cls(cpus, cpus[-min(threads, max(1, len(cpus) - 1)) :])

    @property
    def starting(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two sets to start workers on."""
        half = len(self.cpus) // 2
        return self.cpus[half:], self.cpus[:half] or self.cpus

    @property
    def host(self) -> tuple[int, ...]:
        """What is left; if possible without those that share a core with one that is timed on, since we poll."""
        left = tuple(cpu for cpu in self.cpus if cpu not in self.timed)
        apart = tuple(cpu for cpu in left if not siblings(cpu) & {*self.timed})
        return apart or left or self.cpus

    def quickest(self, seconds_on: Callable[[int], float] = _seconds_on) -> Cores:
        """The same, timed on what is quickest now; the asking thread is put on the quickest CPU of the host, to poll.

        One CPU of a shared machine may take twice as long as another, for seconds, and then no longer, probably by what
        others do on the other half of its core (evals/results/evidence/h100/20261127-211543.md).
        """
        count = len(self.timed)
        probed = self.cpus[-max(PROBED, count) :]
        starts = range(len(probed) - count, -1, -1)
        if len(starts) == 1:
            self.free()
            return self
        spent = dict.fromkeys(probed, 0.0)
        for _ in range(LOOKS):
            for cpu in probed:
                spent[cpu] += seconds_on(cpu)
        together = [probed[start : start + count] for start in starts]
        found = Cores(self.cpus, min(together, key=lambda cpus: max(spent[cpu] for cpu in cpus)))
        polling = [cpu for cpu in found.host if cpu in spent]
        os.sched_setaffinity(0, {min(polling, key=lambda cpu: spent[cpu])} if polling else found.host)
        return found

    def free(self) -> None:
        """The thread that asks may use all CPUs of the host."""
        os.sched_setaffinity(0, self.host)


def of_one_node(available: Collection[int], threads: int, pci: str | None = None, root: Path = SYS) -> Collection[int]:
    """Those of the NUMA node that the device at this PCI address belongs to, or else of the node with most of them.

    All of them, where that node has no room for the threads and the host.
    """
    lists = [folder / "cpulist" for _, folder in sysfs.numbered(root / "devices/system/node", "node")]
    if pci is not None:
        lists = [root / "bus/pci/devices" / pci / "local_cpulist"]
    near = max(({*available} & _listed(file) for file in lists), key=len, default=set())
    return near if len(near) > threads else available


@cache
def siblings(cpu: int, root: Path = SYS) -> frozenset[int]:
    """The CPUs of the same core, itself among them; a virtual machine may not tell."""
    return frozenset({cpu, *_listed(root / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")})


def _listed(file: Path) -> set[int]:
    """Of a list such as "0-3,8"; nothing where there is none."""
    found: set[int] = set()
    for part in (sysfs.text(file) or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found
