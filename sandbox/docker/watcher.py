"""Stand beside one container: take its output, look at its limits, say when it has ended or must end.

How it ended the engine tells the agent, who removes it; when the agent is gone the watcher does. A script for the
agent's own interpreter, with the conversation of `sandbox/supervision/supervisor.py`. Standard library only until then:
the engine's SDK takes a while to load.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import site
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # started without any search path but the standard library's
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from sandbox.kernel import isolation, process_tree
from sandbox.supervision.watching import Bounds, LimitWatch, Output, Signals, watch

_FRAME_HEADER = 8  # of an attached stream without a terminal: which stream, three zeros, length (big endian)
_LAST_WORDS_S = 1.0


class Order(NamedTuple):
    """One running container. The host writes it as JSON, the watcher reads it."""

    host_pid: int
    argv: list[str]  # for messages
    engine: str  # path of the engine's socket
    container: str
    pid: int  # of its process 1, as we see it
    attached: int  # a descriptor from which its stdout and stderr come
    bounds: Sequence[Any]  # the fields of `Bounds`
    litter: Sequence[str] = ()


class FramedOutput(Output):
    """Output that comes in frames, each with a header."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._header = b""
        self._left = 0  # of the frame that is being read

    def _take(self, part: bytes) -> None:
        while part:
            if self._left == 0:
                missing = _FRAME_HEADER - len(self._header)
                self._header, part = self._header + part[:missing], part[missing:]
                if len(self._header) == _FRAME_HEADER:
                    self._left, self._header = int.from_bytes(self._header[4:], "big"), b""
                continue
            super()._take(part[: self._left])
            taken = min(self._left, len(part))
            self._left, part = self._left - taken, part[taken:]


def supervise(order: Order, signals: Signals) -> dict[str, Any]:
    """Watch until it ends or must end; then kill it. Returns the fields of `Ended`, without its status."""
    output, bounds = FramedOutput(order.attached), Bounds(*order.bounds)
    limits = LimitWatch(bounds, lambda: process_tree.descendants_quickly(order.pid))
    handle = _opened(order.pid)
    if handle is None:
        reason = "memory limit" if limits.killed_for_memory() else None
    else:
        try:
            reason = watch(bounds, output, limits, signals, partial(_has_ended, handle), wake=[handle])
        finally:
            with contextlib.suppress(OSError):  # process 1, with which the kernel ends all others of the container
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    if reason is None:
        _drain_rest(output, bounds.output_bytes)
    output.close()  # the engine does not remove a container while its output is being read
    return {
        "status": None,
        "signal": signal.SIGKILL,
        "reason": reason or "exited",
        "output_tail": output.tail(),
        "output_bytes": output.count,
        "cpu_time_s": 0.0,
    }


def _drain_rest(output: Output, at_most: int) -> None:
    """What an ended container has said last; the engine closes the stream when it has passed all on."""
    while output.descriptor is not None and output.count <= at_most:
        if not select.select([output.descriptor], [], [], _LAST_WORDS_S)[0]:
            return
        output.drain()


def _opened(pid: int) -> int | None:
    """A handle on a process; None when it has ended already."""
    try:
        return os.pidfd_open(pid) if pid else None
    except (ProcessLookupError, ValueError):
        return None


def _has_ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], 0)[0])


def _remove(order: Order) -> None:
    """Raises: SandboxError when the engine has gone as well; the next agent then removes it."""
    site.main()
    from sandbox.docker.engine import Engine

    Engine(order.engine).remove(order.container)


def main() -> int:
    report = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    order = Order(**json.loads(sys.stdin.readline()))
    signals = Signals()
    isolation.die_with_parent(signal.SIGTERM)
    isolation.close_to_tracers()
    if os.getppid() != order.host_pid:
        signals.stop_asked = True  # the agent ended before it was asked to take us along
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"started": {"child": None}}), file=report, flush=True)
    ended = supervise(order, signals)
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"ended": ended}), file=report, flush=True)
    if not sys.stdin.readline():  # the agent is gone
        try:
            _remove(order)
        finally:
            for path in map(Path, order.litter):
                with contextlib.suppress(OSError):
                    path.rmdir() if path.is_dir() else path.unlink()
    return 0


if __name__ == "__main__":
    os._exit(main())
