"""Stand beside one container: take its output, look at its limits, remove it, say how it ended.

Refuses to outlive the agent, and to leave the container behind when it does. A script for the agent's own interpreter,
with the conversation of `sandbox/supervision/supervisor.py`. Standard library only: it talks to the engine itself, in
the two words that are needed when the agent is gone.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # started without any search path but the standard library's
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from sandbox.kernel import isolation, process_tree
from sandbox.supervision.watching import ENGINE_LOST, Bounds, LimitWatch, Output, Signals, watch

_FRAME_HEADER = 8  # of an attached stream without a terminal: which stream, three zeros, length (big endian)
_ENGINE_TIMEOUT_S = 60.0
_LAST_WORDS_S = 1.0
_REMOVAL_S = 30.0


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


class Engine:
    """The engine's HTTP interface on its socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        """(status, body). Raises: OSError."""
        connection = http.client.HTTPConnection("localhost", timeout=_ENGINE_TIMEOUT_S)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(_ENGINE_TIMEOUT_S)
        try:
            connection.sock.connect(self._path)
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"the engine answers with nonsense: {error}") from error
        finally:
            connection.close()

    def ran_out_of_memory(self, container: str) -> bool:
        """As the engine has it, where the kernel's own count went with the container."""
        status, body = self.ask("GET", f"/containers/{container}/json")
        return status == 200 and bool(json.loads(body)["State"].get("OOMKilled"))

    def wait(self, container: str) -> int | None:
        status, body = self.ask("POST", f"/containers/{container}/wait")
        return int(json.loads(body)["StatusCode"]) if status == 200 else None

    def remove(self, container: str) -> bool:
        """Kill it and remove it; whether it is gone."""
        deadline = time.monotonic() + _REMOVAL_S
        while (status := self.ask("DELETE", f"/containers/{container}?force=1&v=1")[0]) not in (204, 404):
            if status != 409 or time.monotonic() > deadline:  # 409: somebody else is removing it
                return False
            time.sleep(0.05)
        return True


def supervise(order: Order, signals: Signals) -> dict[str, Any]:
    """Watch until it ends or must end; then remove it. Returns the fields of `Ended` and `cpu_time_s`."""
    engine, output, bounds = Engine(order.engine), FramedOutput(order.attached), Bounds(*order.bounds)
    limits = LimitWatch(bounds, lambda: process_tree.descendants_quickly(order.pid))
    handle = _opened(order.pid)
    if handle is None:
        reason = "memory limit" if limits.killed_for_memory() else None
    else:
        reason = watch(bounds, output, limits, signals, partial(_has_ended, handle), wake=[handle])
    if reason is None:
        _drain_rest(output, bounds.output_bytes)
    code = -signal.SIGKILL
    try:
        if reason is None:
            code = _code(engine, order)
        if reason is None and code == -signal.SIGKILL and engine.ran_out_of_memory(order.container):
            reason = "memory limit"
        output.close()  # the engine waits for whoever reads a container's output before it removes it
        if not engine.remove(order.container):
            reason = ENGINE_LOST
    except OSError:
        reason = ENGINE_LOST
    if reason == ENGINE_LOST:  # the next start clears the container away; nothing in it is to run until then
        _kill(handle)
    return {
        "status": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "reason": reason or ("signal" if code < 0 else "exited"),
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


def _kill(handle: int | None) -> None:
    """Process 1, with which the kernel ends all others of the container."""
    if handle is not None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def _has_ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], 0)[0])


def _code(engine: Engine, order: Order) -> int:
    """Its exit status, below zero the signal that ended it: the engine's init tells that one as 128 and the signal."""
    code = engine.wait(order.container)
    if code is None:
        return -signal.SIGKILL  # somebody has removed it
    return 128 - code if code > 128 else code


def main() -> int:
    report = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    order = Order(**json.loads(sys.stdin.readline()))
    signals = Signals()
    isolation.die_with_parent(signal.SIGTERM)
    isolation.close_to_tracers()
    if os.getppid() != order.host_pid:
        signals.stop_asked = True  # the agent ended before it was asked to take us along
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"started": {"child": None, "init": None}}), file=report, flush=True)
    try:
        ended = supervise(order, signals)
    except BaseException:
        Engine(order.engine).remove(order.container)
        raise
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"ended": ended}), file=report, flush=True)
    if not sys.stdin.readline():  # nobody has heard it
        for path in map(Path, order.litter):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
    return 0


if __name__ == "__main__":
    os._exit(main())
