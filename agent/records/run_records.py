"""The records of a run: its ledger, its attempts and the stack that follows from them.

A change becomes permanent in one order: its attempt on the disk, its row in the ledger, its commit. So a run that was
killed at any moment goes on with every change that a row calls kept, and with none that has no row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.config import RunConfig
from agent.records import costs, measurements
from agent.records.attempts import Attempt, Attempts
from agent.records.ledger import Ledger, NewRow
from agent.repository.stack import Change, Conflict, Stack, StackError
from tools.candidate import Candidate
from tools.judging.verdict import Verdict
from tools.profiler.ceilings import on_faster
from tools.profiler.result import StepCeiling

AUDITED = "audited"  # the profile of what an audit left of the original


@dataclass
class RunRecords:
    config: RunConfig
    run_dir: Path
    created_unix: int
    stack: Stack
    ledger: Ledger
    attempts: Attempts

    def change_of(self, attempt_id: str) -> Change:
        """What an attempt becomes on the stack; the same again at any time, so that a stack can be rebuilt."""
        attempt, verdict = self.attempts.load(attempt_id), self.attempts.verdict(attempt_id)
        row = self.ledger.find(attempt_id)
        return Change(
            attempt_id,
            attempt.candidate.diff,
            commit_message(attempt, verdict, self.config),
            self.created_unix + (row.seq if row is not None else len(self.ledger.rows)),
            attempt.base,
        )

    def add(self, attempt: Attempt, verdict: Verdict, stack: list[str] | None = None) -> None:
        """One row for an attempt. `stack`: the attempts on the stack from now on. A second time changes nothing."""
        if self.ledger.find(attempt.id) is not None:
            return
        candidate = attempt.candidate
        self.ledger.append(
            NewRow(
                attempt_id=attempt.id,
                time=datetime.now(UTC),
                step=candidate.step,
                key=candidate.key,
                role=candidate.role,
                title=candidate.shown,
                rationale=candidate.rationale,
                predicted_gain=candidate.predicted_gain,
                diff_digest=candidate.digest,
                base=attempt.base,
                below=attempt.below,
                verdict=verdict.name,
                reason=verdict.reason,
                speedup=verdict.speedup,
                evidence=verdict.evidence,
                cost=cost_of(verdict, candidate),
                stack=None if stack is None else tuple(stack),
            )
        )

    def follow(self) -> str:
        """Make the stack what the ledger says; returns the new top."""
        follow(self.ledger, self.stack, self.change_of)
        return self.stack.top

    def stack_without(self, attempt_id: str) -> str | None:
        """The commit of another version of the stack, without one change; None when later changes need it."""
        changes = [self.change_of(name) for name in self.ledger.stacked() if name != attempt_id]
        built = self.stack.build(changes)
        return None if isinstance(built, Conflict) else built

    def base(self, below: Sequence[str] = ()) -> str:
        """The commit that candidates are made on: the top of the stack, with these attempts on it, which fit there."""
        if not below:
            return self.stack.top
        built = self.stack.build([self.change_of(name) for name in below], on=self.stack.top)
        assert isinstance(built, str), "who names them has seen that they fit"
        return built

    def at_most(self, step: str) -> StepCeiling | None:
        """What a step can gain on the stack that it began with, by the profile of the original or of what an audit
        left of it: what is needless there was no bound for anything.
        """
        rows = [row for row in self.ledger.rows if row.role != "beside"]
        before = list(itertools.takewhile(lambda row: row.step != step, rows))
        profile = measurements.profile(self.run_dir, AUDITED) if step != "audit_compute" else None
        if profile is not None:
            before = [row for row in before if row.step != "audit_compute"]
        profile = profile or measurements.profile(self.run_dir, "baseline")
        if profile is None:
            return None
        gained = math.prod(row.speedup.median for row in before if row.verdict == "kept" and row.speedup)
        return on_faster(profile.steps, step, gained)


def follow(ledger: Ledger, stack: Stack, change_of: Callable[[str], Change]) -> list[str]:
    """Make the stack what the ledger says, and return the attempts whose commits were made for it.

    Called after each row that names a stack, and at the start of every resumed run. Raises: StackError when the stack
    holds what the ledger does not know, or a change does not fit; GitError, DiskFull.
    """
    wanted = ledger.stacked()
    present = [commit.attempt_id for commit in stack.commits()]
    if present == wanted:
        return []
    if unknown := [attempt for attempt in present if ledger.find(attempt) is None]:
        raise StackError(
            f"The stack holds {unknown[0]}, of which the ledger knows nothing.",
            hint="ledger.jsonl is not the one of this stack, or its end is missing; restore it.",
        )
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(present, wanted, strict=False)))
    below = stack.commits()[same - 1].commit if same else stack.base
    built = stack.build([change_of(attempt) for attempt in wanted[same:]], on=below)
    if isinstance(built, Conflict):
        raise StackError(f"The kept change {built.attempt_id} does not fit on the stack: {built.reason}")
    stack.adopt(built)
    return wanted[same:]


def cost_of(verdict: Verdict, candidate: Candidate) -> dict[str, Any]:
    """What judging took, read off the evidence, and what a model took to come to the candidate."""
    parts = [verdict.evidence.get(name) or {} for name in ("comparison", "worth")]
    restarts = sum(int(part.get("restarts", 0)) for part in parts)
    return {
        "wall_s": float(verdict.evidence.get("wall_s", 0.0)),
        "restarts": restarts,
        "tokens": candidate.tokens,
        "dollars": candidate.dollars,
    }


def commit_message(attempt: Attempt, verdict: Verdict | None, config: RunConfig) -> str:
    """What, why, the measured gain with its interval, what it costs, and how to reproduce it."""
    candidate, below = attempt.candidate, len(attempt.below)
    lines = [candidate.shown, "", candidate.rationale.strip(), ""]
    if verdict is not None and verdict.name == "kept" and verdict.speedup is not None:
        floor = f"noise floor {verdict.speedup.noise_floor:.1%}"
        over = f"what lies below the {below} before it, together with them" if below else "the commit below"
        lines.append(f"Measured: {verdict.speedup} over {over}, {floor}.")
        lines += costs.told(verdict.evidence)
    else:
        lines.append("No gain of its own; it makes a later commit possible.")
    lines += ["", f"Step: {candidate.step}", f"Reproduce: agent run --target . --entry {config.entry}"]
    return "\n".join(lines)
