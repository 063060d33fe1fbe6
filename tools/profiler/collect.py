"""Profile a build in the sandbox: run it under torch.profiler there, take the trace out, and make a profile of it.

Refuses to believe the guest beyond its trace, which is read as untrusted text. A build that fails under the profiler is
a note in the profile, with what is known without it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import DiskFull, means_disk_full
from tools.judging.tensors import BadTensorFile, opened
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Workload
from tools.profiler import analysis, reach, trace
from tools.profiler.analysis import Subject
from tools.profiler.result import Ceilings, Profile
from tools.profiler.trace import Trace

CALLS = 10


@dataclass
class Collector:
    """Profiles builds of one target on the same inputs, one of each case."""

    setting: Setting
    workload: Workload
    ceilings: Ceilings
    calls: int = CALLS

    def profile(self, build: Build, keep: Path) -> Profile:
        """The trace is left at `keep`, for Perfetto or chrome://tracing. Raises: DiskFull, SandboxError."""
        device = reach.device_of(self.workload.environment)
        known_us = 1e6 * sum(case.call_s for case in self.workload.cases) / max(1, len(self.workload.cases))
        try:
            call_us, found, notes = self._run(build, keep)
        except WorkerFault as fault:
            call_us, found, notes = known_us, Trace(), [f"it fails under the profiler: {fault}"]
        subject = Subject(
            entry=self.setting.entry,
            device=str(self.workload.environment.get("gpu_name") or self.workload.device),
            call_us=call_us,
            architecture=str(self.workload.environment.get("gfx") or ""),
            compute_units=device.compute_units if device else None,
            ceilings=self.ceilings,
        )
        profile = analysis.profile(found, subject)
        profile.notes = [*notes, *profile.notes]
        return profile

    def _run(self, build: Build, keep: Path) -> tuple[float, Trace, list[str]]:
        """(mean latency of the cases, the trace, notes). Raises: WorkerFault, DiskFull."""
        with Worker(self.setting, build, "profiler", timeout_s=self.setting.check_timeout_s) as worker:
            worker.ask("build", compile_options=build.compile_options, **self.workload.build_arguments(worker))
            if self.workload.states:
                worker.ask("load_state", path=worker.reveal(self.workload.states["a"]))
            cases = [
                {"path": worker.reveal(path), "phase": case.phase, "constants": list(self.workload.constants)}
                for path, case in zip(self.workload.inputs, self.workload.cases, strict=True)
            ]
            left = worker.saved("trace.json")
            said = worker.ask("profile", cases=cases, calls=self.calls, trace=str(left))
            worker.stop()
            _take(left, keep)
        times = [float(each) for each in said.get("call_us", []) if isinstance(each, int | float) and each > 0]
        notes = [] if said.get("modules") else ["compiled code runs in no module: kernels are not led back to one"]
        return (sum(times) / len(times) if times else 0.0), trace.read(keep), notes


def _take(left: Path, keep: Path) -> None:
    """Copy what a guest has written, if it is a plain file. Raises: WorkerFault, DiskFull."""
    try:
        with opened(left) as source, keep.open("wb") as into:
            copied = 0
            while part := source.read(1 << 20):
                copied += len(part)
                if copied > trace.MOST_BYTES:
                    break
                into.write(part)
    except BadTensorFile as error:
        raise WorkerFault("died", f"it left no trace: {error}") from error
    except OSError as error:
        shutil.rmtree(keep, ignore_errors=True)
        if means_disk_full(error.errno):
            raise DiskFull(f"The disk is full: the trace could not be written to {keep}.") from error
        raise
