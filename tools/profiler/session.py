"""Profile one tree from nothing: open its workload in a sandbox, measure what the device reaches, take a call apart.

Does not choose a sandbox, or keep anything but the trace that it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandbox.contract import Sandbox
from tools.judging.open_referee import open_referee
from tools.profiler import reach
from tools.profiler.collect import CALLS, Collector, Depth
from tools.profiler.result import Profile


@dataclass(frozen=True)
class Options:
    """How a tree is profiled."""

    calls: int = CALLS
    """Of each case of the workload."""
    depth: Depth = "none"
    """How far AMD's own tools look."""
    threads: int = 1
    start_timeout_s: float = 120.0
    original: Path | None = None
    """Where the user has what the tree is a copy of."""


def profile_tree(
    sandbox: Sandbox, tree: Path, entry: str, *, python: str, scratch: Path, trace: Path, options: Options
) -> Profile:
    """`scratch` is a folder of ours that exists; the trace is left at `trace`, packed where that ends in `.gz`.

    Raises: WorkloadError, SandboxError, OSError.
    """
    referee = open_referee(
        tree,
        entry,
        python=python,
        sandbox=sandbox,
        scratch=scratch,
        threads=options.threads,
        start_timeout_s=options.start_timeout_s,
        original=options.original,
    )
    try:
        ceilings, notes = reach.ceilings(referee.setting, referee.workload.environment)
        collector = Collector(referee.setting, referee.workload, ceilings, options.calls)
        found = collector.profile(referee.pristine, trace)
        found.notes += notes
        return collector.look_closer(found, referee.pristine, options.depth)
    finally:
        referee.close()
