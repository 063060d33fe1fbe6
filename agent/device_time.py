"""How long the processes of a run have had the device: the time during which any of them could run.

On a machine that is lent by the minute that is what a run costs. Refuses to guess what a process does with it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any, cast

from sandbox.contract import Command, Ended, Process, Promises, Sandbox


@dataclass
class Metered:
    """A `Sandbox` that counts. `seconds` is what all processes together took until now, side by side counted once."""

    inner: Sandbox
    _before: float = 0.0
    _running: dict[int, _Counted] = field(default_factory=dict)
    _since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return self.inner.name

    @name.setter
    def name(self, name: str) -> None:
        raise AttributeError("it is the name of the sandbox inside")

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._before + (time.monotonic() - self._since if self._running else 0.0)

    def promises(self) -> Promises:
        return self.inner.promises()

    def start(self, command: Command) -> Process:
        process = _Counted(self, self.inner.start(command))
        self.runs(process)
        return cast(Process, process)

    def reap(self) -> list[str]:
        return self.inner.reap()

    def stop_running(self) -> None:
        """End what still runs: who started it in another thread is told that it ended."""
        with self._lock:
            left = [*self._running.values()]
        with contextlib.ExitStack() as ending:  # all of them, though one cannot be ended
            for process in left:
                ending.callback(process.stop)

    def runs(self, process: _Counted) -> None:
        with self._lock:
            if not self._running:
                self._since = time.monotonic()
            self._running[id(process)] = process

    def rests(self, process: _Counted) -> None:
        with self._lock:
            if id(process) in self._running:
                del self._running[id(process)]
                if not self._running:
                    self._before += time.monotonic() - self._since


class _Counted:
    """A process until it is stopped, less the time in which it is frozen; all else is the process's own."""

    def __init__(self, meter: Metered, process: Process) -> None:
        self._meter, self._process = meter, process

    def stop(self) -> Ended:
        try:
            return self._process.stop()
        finally:
            self._meter.rests(self)

    def freeze(self) -> None:
        self._process.freeze()
        self._meter.rests(self)

    def thaw(self) -> None:
        self._meter.runs(self)
        self._process.thaw()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)
