"""Profile a build, or a tree from nothing: run it in the sandbox under torch.profiler, and make a profile of its trace.

The trace is read as untrusted text. A build that fails under the profiler is a note in the profile, with what is known
without it.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictBool, StrictFloat

from sandbox.contract import Sandbox
from sandbox.errors import DiskFull, means_disk_full
from tools.judging.described import MOST_CASES
from tools.judging.open_referee import open_referee
from tools.judging.tensors import BadTensorFile, opened
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Workload
from tools.profiler import analysis, closer_look, reach
from tools.profiler import trace as traces
from tools.profiler.analysis import Subject
from tools.profiler.result import Ceilings, Made, Profile
from tools.profiler.rocprof import running, tool
from tools.profiler.rocprof.merge import merge
from tools.profiler.trace import Trace

CALLS = 10
# "launches" runs the calls once under rocprofv3, "counters" once more for each pass, "all" also under rocprof-compute
Depth = Literal["none", "launches", "counters", "all"]


class _Profiled(BaseModel):
    """The reply to `profile`."""

    call_us: list[Annotated[StrictFloat, Field(gt=0, allow_inf_nan=False)]] = Field(max_length=MOST_CASES)
    modules: StrictBool


@dataclass
class Collector:
    """Profiles builds of one target on the same inputs, one of each case."""

    setting: Setting
    workload: Workload
    ceilings: Ceilings
    calls: int = CALLS

    def profile(self, build: Build, keep: Path) -> Profile:
        """The trace is left at `keep`, for Perfetto or chrome://tracing; packed where that ends in `.gz`.

        Raises: DiskFull, SandboxError.
        """
        try:
            call_us, found, notes = self._run(build, keep)
        except WorkerFault as fault:
            call_us, found, notes = [], Trace(), [f"it fails under the profiler: {fault}"]
        told = self.workload.environment
        known = [1e6 * case.call_s for case in self.workload.cases]
        names = unique([case.name for case in self.workload.cases])
        subject = Subject(
            entry=self.setting.entry,
            device=str(told.get("gpu_name") or self.workload.device),
            cases=dict(zip(names, call_us if len(call_us) == len(names) else known, strict=True)),
            architecture=str(told.get("gfx") or ""),
            compute_units=told.get("compute_units"),
            ceilings=self.ceilings,
        )
        profile = analysis.profile(found, subject)
        profile.notes = [*notes, *profile.notes]
        torch, triton, hip, cuda = (str(told.get(name) or "") for name in ("torch", "triton", "hip", "cuda"))
        platform = f"HIP {hip}" if hip else f"CUDA {cuda}" if cuda else ""
        profile.made = Made(date=datetime.now(UTC), torch=torch, triton=triton, platform=platform)
        return profile

    def look_closer(self, profile: Profile, build: Build, depth: Depth) -> Profile:
        """With what AMD's tools tell besides, where the device is theirs and the sandbox has them. Raises: OSError."""
        profile.deeper = closer_look.commands_for(profile, self.workload)
        if not self.workload.environment.get("gfx") or depth == "none":
            return profile
        with running.job(self.setting, self.workload, build, self.calls) as job:
            tools = tool.find_tools(job)
            profile.notes += tools.notes
            recorded = tool.record(job, tools, profile.architecture, counters=depth != "launches")
            profile = merge(profile, recorded, "rocprofv3")
            if depth == "all":
                profile = merge(profile, tool.record_compute(job, tools), "rocprof-compute")
        return profile

    def _run(self, build: Build, keep: Path) -> tuple[list[float], Trace, list[str]]:
        """(latency of each case in µs, the trace, notes). Raises: WorkerFault, DiskFull."""
        with Worker(self.setting, build, "profiler", timeout_s=self.setting.check_timeout_s) as worker:
            worker.ask("build", compile_options=build.compile_options, **self.workload.build_arguments(worker))
            if self.workload.states:
                worker.ask("load_state", path=worker.reveal(self.workload.states["a"]))
            cases = self.workload.staged(worker)
            left = worker.saved("trace.json")
            said = worker.ask_for(_Profiled, "profile", cases=cases, calls=self.calls, trace=str(left))
            worker.stop()
            _take(left, keep)
        notes = [] if said.modules else ["compiled code runs in no module: kernels are not led back to one"]
        return said.call_us, traces.read(keep), notes


def unique(names: Sequence[str]) -> list[str]:
    """The same names, numbered where one occurs again."""
    return [name if names.index(name) == at else f"{name} #{at + 1}" for at, name in enumerate(names)]


def _take(left: Path, keep: Path) -> None:
    """Copy what a guest has written, if it is a plain file. Raises: WorkerFault, DiskFull, OSError."""
    begun = False
    try:
        keep.parent.mkdir(parents=True, exist_ok=True)
        with opened(left) as source, gzip.open(keep, "wb", 5) if keep.suffix == ".gz" else keep.open("wb") as into:
            copied, begun = 0, True
            while part := source.read(1 << 20):
                copied += len(part)
                if copied > traces.MOST_BYTES:
                    break
                into.write(part)
    except BadTensorFile as error:
        raise WorkerFault("died", f"it left no trace: {error}") from error
    except OSError as error:
        if begun:  # what could not be opened is not ours to remove
            keep.unlink(missing_ok=True)
        if means_disk_full(error.errno):
            raise DiskFull(f"The disk is full: the trace could not be written to {keep}.") from error
        raise


def profile_tree(
    sandbox: Sandbox,
    tree: Path,
    entry: str,
    *,
    python: str,
    scratch: Path,
    trace: Path,
    calls: int = CALLS,
    depth: Depth = "none",
    threads: int = 1,
    start_timeout_s: float = 120.0,
    original: Path | None = None,
) -> Profile:
    """`scratch` is a folder of the agent that exists; the trace is left at `trace`, packed where that ends in `.gz`.

    `original` is where the user has what the tree is a copy of. Raises: WorkloadError, SandboxError, OSError.
    """
    referee = open_referee(
        tree,
        entry,
        python=python,
        sandbox=sandbox,
        scratch=scratch,
        threads=threads,
        start_timeout_s=start_timeout_s,
        original=original,
    )
    try:
        ceilings, notes = reach.ceilings(referee.setting, referee.workload.environment)
        collector = Collector(referee.setting, referee.workload, ceilings, calls)
        found = collector.profile(referee.pristine, trace)
        found.notes += notes
        return collector.look_closer(found, referee.pristine, depth)
    finally:
        referee.close()
