"""End every process below one of ours, also those that left its group or session.

Waits are bounded: a process stuck in a driver cannot be ended, and is only reported.
Standard library only, because the supervisor uses it too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from sandbox.kernel import process_tree

_FAST_ROUNDS = 2000  # without a rest in between: what forks all the time must be met between two forks


def end_our_descendants(*, uid: int | None = None, patience_s: float = 10.0) -> dict[int, int]:
    """Kill and bury everything below this process, which must adopt orphans; returns their wait statuses.

    Having no child at all is the kernel's own proof: whatever lost its parent became our child in the same moment.
    So even a process that does nothing but fork and end, and is never there when it is looked at, is caught; a look
    takes some 0.02 ms, a fork several times that. `uid` is a user that owns nothing else: the kernel kills all of it
    in one go.
    """
    deadline = time.monotonic() + patience_s
    statuses: dict[int, int] = {}
    rounds = 0
    while (ended := bury()) is not None and time.monotonic() < deadline:
        statuses.update(ended)
        if uid is not None and rounds == 0:
            _kill_user(uid)
        kill(process_tree.children_quickly(os.getpid()))
        rounds += 1
        if rounds > _FAST_ROUNDS:
            time.sleep(0.001)
    return statuses


def end_descendants(root: int, *, patience_s: float = 10.0) -> bool:
    """The same for a process that is not ourselves and does not bury its dead: until two looks in a row agree."""
    deadline = time.monotonic() + patience_s
    before: set[int] | None = None
    while True:
        found = set(process_tree.descendants_quickly(root))
        states = [process_tree.stat(pid) for pid in found]
        if found == before and not any(state is not None and state.alive for state in states):
            return True
        if time.monotonic() > deadline:
            return False
        kill(found)
        before = found
        time.sleep(0.0005)


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end(pids: Iterable[int], *, patience_s: float = 10.0) -> bool:
    """Kill these, which need not be ours, and wait until they are dead; False when one still was not."""
    deadline = time.monotonic() + patience_s
    born = {pid: found.started_ticks for pid in pids if (found := process_tree.stat(pid)) is not None}
    kill(born)
    while any(
        found is not None and found.alive and found.started_ticks == born[found.pid]
        for found in map(process_tree.stat, born)
    ):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


def bury() -> dict[int, int] | None:
    """Wait for every child of ours that has ended: pid to wait status. None when we have no child at all."""
    ended: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return ended
            ended[pid] = status
    except ChildProcessError:
        return ended or None


def _kill_user(uid: int) -> None:
    """`kill(-1)` as that user: no fork can slip through, because the kernel holds the list meanwhile."""
    helper = os.fork()
    if helper == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(helper, 0)
