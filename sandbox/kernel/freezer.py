"""Freeze a process tree so that nothing of it runs, and let it go on: one protocol, and the way that works everywhere.

The other way is `cgroup.Group`. The supervisor is not frozen: it must go on draining the tree's output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sandbox.contract import WouldNotFreeze
from sandbox.errors import SandboxError
from sandbox.kernel import process_tree

Members = Callable[[], list[int]]
PATIENCE_S = 5.0  # on a machine with a CPU for each task that runs
MOST_TASKS = 12  # for each CPU, by which patience grows: the tree itself may have made them


def patience_s() -> float:
    """How long to wait for a tree to stop: a stop takes effect when a task is next scheduled."""
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return PATIENCE_S * min(MOST_TASKS, max(1.0, running / (os.cpu_count() or 1)))


class Freezer(Protocol):
    """`members` lists the tree, ours left out."""

    def freeze(self, members: Members) -> None:
        """Returns only when no task can run. Raises: WouldNotFreeze, SandboxError."""

    def thaw(self, members: Members) -> None: ...

    def holds(self) -> frozenset[int]:
        """The processes it keeps from running although the kernel lists them as sleeping."""

    def cpu_time_s(self) -> float | None:
        """Time used by everything it freezes, None when it keeps no account."""


class SignalFreezer:
    """SIGSTOP to every process of the tree, again until two looks in a row find every thread stopped.

    A process that is stopped cannot continue another, but timers of the kernel can send it a SIGCONT: whoever freezes
    has to see whether it ran all the same.
    """

    def freeze(self, members: Members) -> None:
        begun, told = time.monotonic(), set[int]()
        calm: list[int] | None = None
        while True:
            found = sorted(members())
            moving = [pid for pid in found if not _stopped(pid)]
            if not moving and found == calm:  # both looks saw the same ones: none ended and left a child between them
                return
            told.update(pid for pid in moving if _signal(pid, signal.SIGSTOP))
            calm = None if moving else found
            if time.monotonic() - begun > patience_s():
                if untold := [pid for pid in moving if pid not in told]:
                    raise SandboxError(f"processes {untold} could not be stopped")
                raise WouldNotFreeze(f"{len(moving)} of its processes go on though they were stopped again and again")
            if moving:
                time.sleep(0.0001)

    def thaw(self, members: Members) -> None:
        for pid in members():
            _signal(pid, signal.SIGCONT)

    def holds(self) -> frozenset[int]:
        return frozenset()

    def cpu_time_s(self) -> float | None:
        return None


def _stopped(pid: int) -> bool:
    for tid in process_tree.threads(pid):
        thread = process_tree.stat(pid, tid)
        # D with a child is a vfork, which lasts as long as that is stopped; any other wait in the kernel ends by itself
        waits = thread is not None and thread.state == "D" and process_tree.children_of_thread(pid, tid)
        if thread is not None and not thread.cannot_run and not waits:
            return False
    return True


def _signal(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False
