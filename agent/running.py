"""Stop the processes of a run from any thread, so that the end of a run does not wait for them."""

from __future__ import annotations

import contextlib
import threading
import weakref

from sandbox.contract import Command, Process, Promises, Sandbox


class Stoppable:
    """A `Sandbox` that remembers the processes it has started."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner, self.name = inner, inner.name
        self._started, self._lock = weakref.WeakSet[Process](), threading.Lock()

    def promises(self) -> Promises:
        return self.inner.promises()

    def start(self, command: Command) -> Process:
        process = self.inner.start(command)
        with self._lock:
            self._started.add(process)
        return process

    def reap(self) -> list[str]:
        return self.inner.reap()

    def stop_all(self) -> None:
        """Stop every process, even when stopping one of them fails. A thread that waits for one sees its end."""
        with self._lock:
            started = [*self._started]
        with contextlib.ExitStack() as stopping:
            for process in started:
                stopping.callback(process.stop)
