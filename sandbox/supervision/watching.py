"""Watch one command from outside: take its output, look at its limits, notice that it must end.

Starts and ends nothing. Standard library only: it runs inside supervisors, beside a command and never in it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sandbox.kernel import cgroup, process_tree
from sandbox.supervision.disk import DiskWatch

_TAIL_BYTES = 64 << 10
_CALM_S, _ALERT_S = 0.2, 0.02  # between two looks at the limits; the second when use has just grown fast
_GROWTH = 1 / 16  # of a limit, between two looks: fast
_EXACT_S = 0.3  # for the exact sum of a tree's memory: it takes seconds for many large processes
# so far above ours lie the kernel's limits, where it has any, so that ours is met first, and named
SPARE_TASKS, SPARE_MEMORY = 64, 64 << 20


class Bounds(NamedTuple):
    """The limits of a command that are looked at from outside; None where there is none. See `contract.Limits`."""

    memory_bytes: int | None
    processes: int | None
    output_bytes: int
    disk_bytes: int | None = None
    free_disk_bytes: int = 0
    writable: Sequence[str] = ()  # the folders of which the two tell
    memory_events: str | None = None  # where the kernel counts what it kills in this tree for want of memory


class Output:
    """What the command prints: counted, and only the end of it kept."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor: int | None = descriptor
        self.count = 0
        self._tail = bytearray()

    def drain(self, at_most: int = 1 << 20) -> None:
        """Take what is there now; not more, so that limits are looked at during a flood."""
        taken = 0
        while self.descriptor is not None and taken < at_most:
            try:
                part = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                return
            except ConnectionResetError:
                part = b""
            if not part:
                self.close()
            taken += len(part)
            self._take(part)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _take(self, part: bytes) -> None:
        self.count += len(part)
        self._tail += part
        del self._tail[:-_TAIL_BYTES]

    def tail(self) -> str:
        return self._tail.decode(errors="replace")


class LimitWatch:
    """Looks at what a tree uses, oftener while that grows. `members` lists its processes."""

    def __init__(self, bounds: Bounds, members: Callable[[], list[int]]) -> None:
        self._bounds, self._members = bounds, members
        self._memory, self._tasks = 0, 0
        self._disk = DiskWatch(bounds.writable, bounds.disk_bytes, bounds.free_disk_bytes)
        self.next_look_s = 0.0

    def broken(self) -> str | None:
        """The limit that is passed, if one is; takes a second at most, so that a wish to stop is heard."""
        if self.killed_for_memory():
            return "memory limit"
        bounds, pids = self._bounds, self._members()
        memory, tasks = process_tree.resident_bytes(pids), sum(len(process_tree.threads(pid)) for pid in pids)
        grew = self._grew(memory - self._memory, bounds.memory_bytes) or self._grew(
            tasks - self._tasks, bounds.processes
        )
        self._memory, self._tasks = memory, tasks
        if bounds.processes is not None and tasks > bounds.processes:
            return "process limit"
        most = bounds.memory_bytes
        if most is not None and memory > most and process_tree.proportional_bytes(pids, within_s=_EXACT_S) > most:
            return "memory limit"
        if self._disk.broken():
            return "disk limit"
        self.next_look_s = time.monotonic() + (_ALERT_S if grew or self._disk.busy else _CALM_S)
        return None

    def killed_for_memory(self) -> bool:
        """Whether the kernel was faster than we are: what it killed need not be the process that we wait for."""
        events = self._bounds.memory_events
        return events is not None and cgroup.killed_for_memory(Path(events)) > 0

    @staticmethod
    def _grew(by: int, limit: int | None) -> bool:
        return limit is not None and by > limit * _GROWTH


class Signals:
    """SIGTERM (the agent's, or the kernel's when the agent is gone) asks for the end; SIGCHLD only wakes us."""

    def __init__(self) -> None:
        self.stop_asked = False
        self.descriptor, end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(end, False)
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def _ask(self, number: int, frame: object) -> None:
        self.stop_asked = True

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass


def watch(
    bounds: Bounds,
    output: Output,
    limits: LimitWatch,
    signals: Signals,
    is_over: Callable[[], bool],
    wake: Iterable[int] = (),
) -> str | None:
    """Returns why it has to be ended, or None once it `is_over`. `wake` are further descriptors worth a look."""
    poll = select.poll()
    shown = output.descriptor
    for descriptor in (signals.descriptor, *([] if shown is None else [shown]), *wake):
        poll.register(descriptor, select.POLLIN)
    while True:
        poll.poll(max(0.0, limits.next_look_s - time.monotonic()) * 1000)
        signals.clear()
        output.drain()
        if shown is not None and output.descriptor is None:
            poll.unregister(shown)
            shown = None
        if is_over():
            return "memory limit" if limits.killed_for_memory() else None
        if output.count > bounds.output_bytes:
            return "output limit"
        if signals.stop_asked:
            return "stopped"
        if time.monotonic() >= limits.next_look_s and (reason := limits.broken()):
            return reason
