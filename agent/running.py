"""Stop the processes of a run from any thread, so that a run that ends does not wait for them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from dataclasses import dataclass, field

from sandbox.contract import Command, Process, Promises, Sandbox


@dataclass
class Stoppable:
    """A `Sandbox` that remembers the processes it has started."""

    inner: Sandbox
    _started: weakref.WeakSet[Process] = field(default_factory=weakref.WeakSet)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return self.inner.name

    @name.setter
    def name(self, name: str) -> None:
        raise AttributeError("the name belongs to the inner sandbox")

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
