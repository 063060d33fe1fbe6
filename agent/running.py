"""Stop the processes of a run from any thread, so that the end of a run does not wait for them."""

from __future__ import annotations

import contextlib
import threading
import weakref

from sandbox.contract import Command, Process, Promises, Sandbox
from sandbox.errors import SandboxError


class Stoppable:
    """A `Sandbox` that remembers the processes it has started. Once it has stopped them all, only the main thread
    starts more, to sum up: what other threads did was given up.
    """

    def __init__(self, inner: Sandbox) -> None:
        self.inner, self.name = inner, inner.name
        self._started, self._lock, self._over = weakref.WeakSet[Process](), threading.Lock(), False

    def promises(self) -> Promises:
        return self.inner.promises()

    def start(self, command: Command) -> Process:
        """Raises: SandboxError."""
        in_thread = threading.current_thread() is not threading.main_thread()
        process = None if in_thread and self._over else self.inner.start(command)
        with self._lock:
            if process is not None and not (in_thread and self._over):
                self._started.add(process)
                return process
        if process is not None:
            process.stop()
        raise SandboxError("What runs is being stopped, and nothing more is started.")

    def reap(self) -> list[str]:
        return self.inner.reap()

    def stop_all(self) -> None:
        """Stop every process, even when stopping one of them fails. A thread that waits for one sees its end."""
        with self._lock:
            started, self._over = [*self._started], True
        with contextlib.ExitStack() as stopping:
            for process in started:
                stopping.callback(process.stop)
