"""Observe a build: run it once under observation in the sandbox, for the proposers to be driven by what was seen.

What comes back is a hint about where to look, never evidence of a gain.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.judging.inputs import draw
from tools.judging.worker import Build, Setting, Worker
from tools.judging.workload import Workload


@dataclass
class Observer:
    """Observes builds of one target, all on the same inputs: one of each case, from the pristine entry."""

    setting: Setting
    workload: Workload
    pristine: Build
    scratch: Path
    calls: int = 3
    _inputs: list[Path] = field(default_factory=list)

    def observe(self, build: Build) -> dict[str, Any]:
        """What the guest saw (see `sandbox/guest/observe.py`). Raises: WorkerFault."""
        if not self._inputs:
            self._inputs = self._draw()
        with Worker(self.setting, build, "observer", timeout_s=self.setting.check_timeout_s) as worker:
            worker.ask("build", **self.workload.build_arguments(worker))
            if self.workload.states:
                worker.ask("load_state", path=worker.reveal(self.workload.states["a"]))
            cases = [
                {"path": worker.reveal(path), "phase": case.phase, "constants": list(self.workload.constants)}
                for path, case in zip(self._inputs, self.workload.cases, strict=True)
            ]
            return worker.ask("observe", cases=cases, calls=self.calls)

    def _draw(self) -> list[Path]:
        self.scratch.mkdir(parents=True, exist_ok=True)
        drawn = []
        with Worker(self.setting, self.pristine, "reference") as reference:
            reference.ask("describe")
            for index, case in enumerate(self.workload.cases):
                drawn.append(draw(reference, self.scratch / f"case-{index}", case, random.randrange(1 << 31)))
        return drawn
