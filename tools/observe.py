"""Observe a build: run it once under observation in the sandbox, for the proposers to be driven by what was seen.

What comes back is a hint about where to look, never evidence of a gain.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.judging.worker import Build, Setting, Worker
from tools.judging.workload import Workload
from tools.observation import Observation


@dataclass
class Observer:
    """Observes builds of one target, all on the same inputs, one of each case."""

    setting: Setting
    workload: Workload
    calls: int = 3

    def observe(self, build: Build) -> Observation:
        """What the guest saw. Raises: WorkerFault."""
        with Worker(self.setting, build, "observer", timeout_s=self.setting.check_timeout_s) as worker:
            worker.ask("build", **self.workload.build_arguments(worker))
            if self.workload.states:
                worker.ask("load_state", path=worker.reveal(self.workload.states["a"]))
            cases = [
                {"path": worker.reveal(path), "phase": case.phase, "constants": list(self.workload.constants)}
                for path, case in zip(self.workload.inputs, self.workload.cases, strict=True)
            ]
            return worker.ask_for(Observation, "observe", cases=cases, calls=self.calls)
