"""The live objects of a run, which the nodes need and the JSON state cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent import schedule
from agent.budget import Budget
from agent.builds import Builds
from agent.config import RunConfig
from agent.proposals import Proposals
from agent.proposers import Platform
from agent.records import measurements
from agent.records.attempts import Attempts
from agent.records.ledger import Ledger
from agent.records.measurements import SessionStart
from agent.records.run_records import RunRecords
from agent.reporting.progress import Display, Progress
from agent.repository.stack import Stack
from tools.judging.referee import Referee
from tools.judging.workload import Workload


@dataclass
class RunContext:
    config: RunConfig
    run_dir: Path
    progress: Progress
    display: Display
    workload: Workload
    platform: Platform
    referee: Referee
    stack: Stack
    ledger: Ledger
    attempts: Attempts
    records: RunRecords
    builds: Builds
    proposals: Proposals
    budget: Budget
    end_running: Callable[[], None] = lambda: None  # stops processes that other threads wait for
    ended_steps: dict[str, str] = field(default_factory=dict)  # reasons, for proposers

    def use(self, known: SessionStart) -> None:
        """Use what was measured at the start of this run."""
        self.referee.use_noise(known.aa)
        pays, on_gpu = known.compile_pays(self.referee.delta), self.platform.device == "cuda"
        restart_s = known.compiled_restart_s if pays and on_gpu else known.plain_restart_s
        is_open = measurements.PLAIN not in known.modes and schedule.COMPILING in self.config.steps
        comes_later = is_open and not on_gpu and self.platform.cpp_compiler
        self.budget.know(restart_s, known.compiled_restart_s, compiles_later=comes_later)
        self.keep_time_back()
        if known.compiling_s and not on_gpu:  # there it was done beside other things
            self.budget.learn(known.compiling_s)
        self.referee.own_tests = known.own_tests

    def keep_time_back(self) -> None:
        """For the final measurement of what is proven, of which a restart takes as long as the longest that proved it
        in parts.
        """
        stacked = self.ledger.stacked()
        took = [row.evidence.get("comparison") for row in self.ledger.rows if row.attempt_id in stacked]
        if stacked:
            self.budget.keep_back(max((each["wall_s"] / each["restarts"] for each in took if each), default=0.0))


def stack_profile(commit: str) -> str:
    """The name of the profile of one version of the stack."""
    return f"stack-{commit[:12]}"
