"""Which CPUs start workers, which are timed on, and which are left for the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """Which CPUs do what: two sets to start workers on, one set to time on, and what is left for the host."""

    starting: tuple[tuple[int, ...], tuple[int, ...]]
    timed: tuple[int, ...]
    host: tuple[int, ...]

    @property
    def count(self) -> int:
        return len({*self.timed, *self.host})

    @classmethod
    def of(cls, available: Sequence[int], threads: int) -> Cores:
        """Timed on one core for each thread, of a GPU workload as well: with more to choose from, the thread that
        launches stays where it happened to be put, beside a busy neighbour or not, and the same code scatters.
        """
        cpus = tuple(sorted(available))
        timed = cpus[-min(threads, max(1, len(cpus) - 1)) :]
        host = tuple(c for c in cpus if c not in timed) or cpus
        half = len(cpus) // 2
        return cls((cpus[half:], cpus[:half] or cpus), timed, host)
