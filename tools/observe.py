"""Observe a build: run it under observation in the sandbox, for the proposers to be driven by what was seen.

What comes back is a hint about where to look or what to try, never evidence of a gain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tools.judging.worker import Build, Setting, Worker
from tools.judging.workload import Workload
from tools.observation import Observation
from tools.tuned import Tuned


@dataclass
class Observer:
    """Observes builds of one target, all on the same inputs, one of each case."""

    setting: Setting
    workload: Workload
    calls: int = 3

    def observe(self, build: Build) -> Observation:
        """What the guest saw. Raises: WorkerFault."""
        with self._ready(build, "observer") as (worker, cases):
            return worker.ask_for(Observation, "observe", cases=cases, calls=self.calls)

    def tune(self, build: Build) -> Tuned:
        """How fast our kernels in it are with other options of their launches. Raises: WorkerFault."""
        with self._ready(build, "tuner") as (worker, cases):
            return worker.ask_for(Tuned, "tune", cases=cases)

    @contextmanager
    def _ready(self, build: Build, role: str) -> Iterator[tuple[Worker, list[dict[str, Any]]]]:
        """A worker in this role that has built its callable, and what it is asked to stage."""
        with Worker(self.setting, build, role, timeout_s=self.setting.check_timeout_s) as worker:
            worker.ask("build", **self.workload.build_arguments(worker))
            if self.workload.states:
                worker.ask("load_state", path=worker.reveal(self.workload.states["a"]))
            yield worker, self.workload.staged(worker)
