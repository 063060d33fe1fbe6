"""Stand between the agent and one command: start it, drain its output, watch its limits, end all of it, say how.

Refuses to outlive the agent, and to leave anything behind when it ends itself. A script for the agent's own
interpreter: it reads one `Order` as a line from stdin, and writes JSON lines to the descriptor named by its only
argument: {"started": …} or {"failed": …}, then {"ended": …}, which the agent confirms with another line on stdin.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started without any search path but the standard library's
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from sandbox.kernel import ending, isolation, process_tree
from sandbox.supervision.launch import Launched, LaunchFailure, Order, launch

_TAIL_BYTES = 64 << 10
_CALM_S, _ALERT_S = 0.2, 0.02  # between two looks at the limits; the second when use has just grown fast
_GROWTH = 1 / 16  # of a limit, between two looks: fast


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
            if not part:
                os.close(self.descriptor)
                self.descriptor = None
            taken += len(part)
            self.count += len(part)
            self._tail += part
            del self._tail[:-_TAIL_BYTES]

    def tail(self) -> str:
        return self._tail.decode(errors="replace")


class Limits:
    """Looks at memory and tasks of the tree, oftener while they grow."""

    def __init__(self, order: Order, launched: Launched) -> None:
        self._order, self._init = order, launched.init
        self._memory, self._tasks = 0, 0
        self.next_look_s = 0.0

    def broken(self) -> str | None:
        """The limit that is passed, if one is."""
        pids = [pid for pid in process_tree.descendants_quickly(os.getpid()) if pid != self._init]
        memory, tasks = process_tree.resident_bytes(pids), sum(len(process_tree.threads(pid)) for pid in pids)
        grew = self._grew(memory - self._memory, self._order.memory_bytes) or self._grew(
            tasks - self._tasks, self._order.processes
        )
        self._memory, self._tasks = memory, tasks
        self.next_look_s = time.monotonic() + (_ALERT_S if grew else _CALM_S)
        if self._order.processes is not None and tasks > self._order.processes:
            return "process limit"
        if self._order.memory_bytes is not None and memory > self._order.memory_bytes:
            exact = process_tree.proportional_bytes(pids)
            if exact is None or exact > self._order.memory_bytes:
                return "memory limit"
        return None

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


def supervise(order: Order, launched: Launched, signals: Signals) -> dict[str, Any]:
    """Watch until it ends or must end; then end the rest. Returns the fields of `Ended` and `cpu_time_s`."""
    output, limits = Output(launched.output), Limits(order, launched)
    status, reason = _watch(order, launched, signals, output, limits)
    status = _end(order, launched, status)
    output.drain()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # without a status its namespace was taken down around it, and that is a SIGKILL
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    return {
        "status": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "reason": reason or ("signal" if code < 0 else "exited"),
        "output_tail": output.tail(),
        "output_bytes": output.count,
        "cpu_time_s": used.ru_utime + used.ru_stime,
    }


def _watch(
    order: Order, launched: Launched, signals: Signals, output: Output, limits: Limits
) -> tuple[int | None, str | None]:
    """(wait status of the child if it has ended by itself, the reason if we have to end it)."""
    poll = select.poll()
    poll.register(signals.descriptor, select.POLLIN)
    poll.register(launched.output, select.POLLIN)
    watching_output = True
    while True:
        poll.poll(max(0.0, limits.next_look_s - time.monotonic()) * 1000)
        signals.clear()
        output.drain()
        if watching_output and output.descriptor is None:
            poll.unregister(launched.output)
            watching_output = False
        ended = ending.bury() or {}
        if launched.child in ended:
            return ended[launched.child], None
        if output.count > order.output_bytes:
            return None, "output limit"
        if signals.stop_asked:
            return None, "stopped"
        if time.monotonic() >= limits.next_look_s and (reason := limits.broken()):
            return None, reason


def _end(order: Order, launched: Launched, status: int | None) -> int | None:
    """End whatever is left; returns the wait status of the command, None when its namespace took it along."""
    if launched.init is None:
        _kill_groups(order)
        buried = ending.end_our_descendants(uid=order.uid)
        return buried.get(launched.child) if status is None else status
    ending.end_our_descendants()
    assert launched.status is not None
    os.set_blocking(launched.status, False)
    try:
        text = os.read(launched.status, 64)
    except BlockingIOError:  # stuck in a driver: it has been sent a SIGKILL and will follow it some day
        return None
    return int(text) if text else None


def _kill_groups(order: Order) -> None:
    for path in order.join:
        with contextlib.suppress(OSError):  # version 1 has no such file, nor has Linux before 5.14
            Path(path).with_name("cgroup.kill").write_text("1")


def _confirmed() -> bool:
    """Whether the agent has heard it all; no is said by its end of the pipe being closed, as when it was killed."""
    return bool(sys.stdin.readline())


def _clear_away(order: Order) -> None:
    for path in (*(Path(file).parent for file in order.join), *map(Path, order.litter)):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def main() -> int:
    report = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    os.set_inheritable(report.fileno(), False)
    order = Order(**json.loads(sys.stdin.readline()))
    signals = Signals()
    isolation.die_with_parent(signal.SIGTERM)
    if os.getppid() != order.host_pid:
        return 1  # the agent ended before it was asked to take us along
    isolation.adopt_orphans()
    try:
        launched = launch(order)
    except LaunchFailure as failure:
        said = {"failed": {"stage": failure.stage, "error_number": failure.error_number, "text": failure.text}}
        print(json.dumps(said), file=report, flush=True)
        return 0
    isolation.die_with_parent(signal.SIGTERM)  # a new user namespace may have cleared it
    isolation.close_to_tracers()
    if os.getppid() != order.host_pid:
        signals.stop_asked = True
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"started": {"init": launched.init}}), file=report, flush=True)
    try:
        ended = supervise(order, launched, signals)
    except BaseException:
        ending.end_our_descendants(uid=order.uid)
        raise
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"ended": ended}), file=report, flush=True)
    if not _confirmed():
        _clear_away(order)
    return 0


if __name__ == "__main__":
    os._exit(main())  # all is said and buried; tidying up the interpreter would take as long as ending the command
