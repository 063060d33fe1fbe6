"""The end of a run: hand over the result, write the report, say the last line.

Does not compute: every number comes from the ledger or from a comparison that is kept in the run's folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel

from agent import environment
from agent.budget import USED_UP
from agent.context import RunContext, stack_profile
from agent.llm.account import Spending
from agent.proposers.replay import Replay
from agent.records import measurements
from agent.records.attempts import leave_out_id
from agent.records.measurements import SessionStart, Whole
from agent.records.run_folder import RunFolder
from agent.reporting import afresh, report_text, wording
from agent.reporting.progress import Note, RunEnded
from agent.reporting.report import (
    Afresh,
    Attempt,
    Baselines,
    Kept,
    Latency,
    ModelUse,
    Report,
    Sandbox,
    Step,
    TimeShare,
    Workload,
)
from agent.repository.export import Exported, export
from agent.repository.stack import Stack
from agent.repository.target import tree_hash
from agent.state import RunState
from agent.step_names import STEPS
from sandbox.contract import Promises
from tools.errors import TargetUnreadable
from tools.judging.comparison import Comparison
from tools.profiler.result import Profile
from tools.rewrite import overlay


class TargetFacts(BaseModel):
    """`target.json`: what the target was when the run began."""

    tree_hash: str
    notes: list[str] = []


def target_notes(run_dir: Path, stack: Stack) -> list[str]:
    """What a reader must know of the target as it was found."""
    facts = TargetFacts.model_validate_json((run_dir / "target.json").read_bytes())
    count = stack.facts.uncommitted
    found = [f"{wording.count(count, 'file')} with uncommitted changes included as found"] if count else []
    return found + facts.notes


def finish(ctx: RunContext, folder: RunFolder, state: RunState, promises: Promises, wall_s: float) -> None:
    """Export what is on the stack and write `report.json` and `report.md`. Doing so twice is harmless."""
    exported = export(ctx.stack, ctx.config.run_id, folder.path)
    made = compose(ctx, folder, state, promises, exported, wall_s)
    page = report_text.write(made, folder.path)
    result = str(exported.folder) if exported.folder else None
    gains = [each.speedup for each in made.kept if each.speedup]
    ctx.progress.emit(
        RunEnded(made.outcome, str(page), exported.branch, result, made.speedup, made.speedup_over_compile, gains)
    )


def compose(
    ctx: RunContext, folder: RunFolder, state: RunState, promises: Promises, exported: Exported, wall_s: float
) -> Report:
    run = folder.read()
    session, whole = measurements.session_start(folder.path), measurements.whole(folder.path)
    assert session is not None, "a walk that came to its end has measured the baseline"
    if whole is not None and whole.top != ctx.stack.top:
        whole = None
    unsettled, counted = (whole.over_eager.unsettled, whole.counted()) if whole else ("", None)
    whole = whole.model_copy(update={"over_eager": counted}) if whole and counted else None
    delta, after = ctx.referee.delta, measurements.profile(ctx.run_dir, stack_profile(ctx.stack.top))
    notes = _notes(ctx, state, folder, exported, [*_pace_notes(unsettled, whole), *_profile_notes(folder.path, after)])
    notes.append(session.own_tests.note)
    again = _afresh(ctx, state)
    if again:
        kept, idle = (sum(each.outcome == outcome for each in again) for outcome in ("kept", afresh.NOT_JUDGED))
        told = f"{kept} of {wording.count(len(again) - idle, 'change')} of an earlier run earn their place here"
        notes.append(f"{told}; {idle} were not judged." if idle else f"{told}.")
        ctx.progress.emit(Note(notes[-1]))
    return Report(
        run_id=run.config.run_id,
        date=datetime.now(UTC),
        command=run.command,
        target=str(run.config.target),
        entry=run.config.entry,
        wall_s=wall_s,
        speedup=whole.over_eager.interval(delta) if whole else None,
        speedup_over_compile=whole.over_compile.interval(delta) if whole and whole.over_compile else None,
        speedup_default_malloc=whole.default_malloc.interval(delta) if whole and whole.default_malloc else None,
        baselines=_baselines(ctx, session, delta),
        final=_over_eager(ctx, whole.over_eager, speedup=whole.over_eager.interval(delta)) if whole else None,
        workloads=_workloads(ctx, whole.over_eager, delta) if whole else [],
        time=time_shares(measurements.profile(folder.path, "baseline"), after),
        steps=_steps(state, ctx),
        kept=_kept(ctx),
        attempts=_attempts(ctx),
        afresh=again,
        model=_model_use(ctx),
        advice=_advice(ctx, session, whole),
        notes=notes,
        environment=environment.describe(ctx.workload.environment),
        sandbox=Sandbox(
            provider=ctx.config.sandbox,
            contained=promises.contained,
            promises=promises.by_name(),
            notes=list(promises.notes),
        ),
        branch=exported.branch,
        result=str(exported.folder) if exported.folder else None,
    )


def _notes(
    ctx: RunContext, state: RunState, folder: RunFolder, exported: Exported, measured: Sequence[str]
) -> list[str]:
    """What a reader must know; what is new since the run began is shown as progress too."""
    facts = TargetFacts.model_validate_json((folder.path / "target.json").read_bytes())
    later = [exported.note, *since_it_began(ctx.config.target, facts.tree_hash)]
    if any(USED_UP in result["reason"] for result in state.get("results", {}).values()):
        later.append("The time budget was used up; what was proven until then is in the result.")
    noise = ctx.referee.noise
    if noise is not None and not noise.usable:
        later.append(f"This machine is too noisy to keep anything: {noise.reason}.")
    later += measured
    for note in later:
        ctx.progress.emit(Note(note))
    return [*target_notes(folder.path, ctx.stack), *later]


def since_it_began(target: Path, known_hash: str) -> list[str]:
    """A note where the target is not what it was; a target that is gone does not prevent the result."""
    try:
        if tree_hash(target) == known_hash:
            return []
    except TargetUnreadable as error:
        return [f"Whether the target has changed is not known; the result is for what it was: {error.message}"]
    return ["The target's files have changed since the run began; the result is for what they were then."]


def _profile_notes(run_dir: Path, after: Profile | None) -> list[str]:
    """What the profile of the stack, and the observation of the original, could not show."""
    notes = []
    if after is not None and after.other_path:
        notes.append("Under the profiler the stack's code seems to take another path: where its time goes is unknown.")
    file = run_dir / "profiles" / "observed.json"
    return notes + (json.loads(file.read_bytes())["notes"] if file.is_file() else [])


def _pace_notes(unsettled: str, whole: Whole | None) -> list[str]:
    """A whole that was measured while the machine changed its pace."""
    if not unsettled:
        return []
    if whole is None:
        return [f"The whole could not be measured: {unsettled}."]
    counted = "restarts in which the original was slow count as if it had not been"
    return [f"Gains over the unmodified target are counted low: {unsettled}; {counted}."]


def _latency(ctx: RunContext, rows: Sequence[Sequence[float]], case: int | None = None, **more: Any) -> Latency:
    """Of one side of a comparison, in microseconds a call: of one case, or of all cases one after the other."""
    times = _times(rows, case)
    cases = ctx.workload.cases if case is None else (ctx.workload.cases[case],)
    tokens = sum(float(c.work.get("tokens", 0)) for c in cases)
    return Latency(
        latency_us=median(times),
        latency_us_low=min(times),
        latency_us_high=max(times),
        tokens_per_s=tokens / median(times) * 1e6 if tokens else None,
        **more,
    )


def _times(rows: Sequence[Sequence[float]], case: int | None = None) -> list[float]:
    return [sum(row) if case is None else row[case] for row in rows]


def _over_eager(ctx: RunContext, found: Comparison, **gain: Any) -> Latency:
    """The candidate's side, with the original beside it."""
    return _latency(ctx, found.candidate_us, eager_us=median(_times(found.incumbent_us)), **gain)


def _baselines(ctx: RunContext, session: SessionStart, delta: float) -> Baselines:
    modes = {mode: _over_eager(ctx, c, speedup=c.interval(delta)) for mode, c in session.compile.items()}
    for mode, screened in session.compile_screened.items():
        modes[mode] = _over_eager(ctx, screened, about=math.exp(median(screened.log_ratios)))
    modes |= {mode: Latency(failed=reason) for mode, reason in session.compile_failed.items()}
    eager = _latency(ctx, session.aa.incumbent_us) if session.aa.incumbent_us else Latency(failed=session.aa.unsettled)
    return Baselines(eager=eager, compile=modes, best=session.best_compile())


def _workloads(ctx: RunContext, found: Comparison, delta: float) -> list[Workload]:
    return [
        Workload(
            name=case.name,
            before=_latency(ctx, found.incumbent_us, i),
            after=_latency(ctx, found.candidate_us, i),
            speedup=found.cases(delta)[i],
        )
        for i, case in enumerate(ctx.workload.cases)
    ]


def time_shares(before: Profile | None, after: Profile | None) -> list[TimeShare]:
    """Of the original and of the stack, each where it was seen."""
    if before is None or not before.kernels:
        return []
    if after is not None and (not after.kernels or after.other_path):
        after = None
    first = {each.category: each.time_us for each in before.categories}
    last = {each.category: each.time_us for each in after.categories} if after else None
    names = [*first, *(name for name in last or {} if name not in first)]
    return [
        TimeShare(category=name, before_us=first.get(name, 0.0), after_us=None if last is None else last.get(name, 0.0))
        for name in names
        if first.get(name) or (last or {}).get(name)
    ]


def _steps(state: RunState, ctx: RunContext) -> list[Step]:
    results = state.get("results", {})
    ended = {"status": "skipped", "reason": "the run ended before it"}
    return [Step.model_validate({"name": name, **(results.get(name) or ended)}) for name in STEPS]


def _kept(ctx: RunContext) -> list[Kept]:
    kept, stacked = list[Kept](), ctx.ledger.stacked()
    for commit in ctx.stack.commits():
        row = ctx.ledger.find(commit.attempt_id)
        assert row is not None, "the stack follows the ledger"
        kept.append(
            Kept(
                attempt=row.attempt_id,
                step=row.step,
                key=row.key,
                title=row.title,
                commit=commit.commit,
                speedup=row.speedup if row.verdict == "kept" else None,
                together_with=[name for name in row.below if name in stacked],
            )
        )
    return kept


def _attempts(ctx: RunContext) -> list[Attempt]:
    left_out = {leave_out_id(row.attempt_id): row.attempt_id for row in ctx.ledger.rows}
    same = {"step", "key", "role", "title", "verdict", "evidence", "cost", "predicted_gain", "speedup"}
    return [
        Attempt(
            id=row.attempt_id,
            why=row.reason,
            leaves_out=left_out.get(row.attempt_id, ""),
            **row.model_dump(include=same),
        )
        for row in ctx.ledger.rows
    ]


def _model_use(ctx: RunContext) -> ModelUse | None:
    if ctx.config.model is None and ctx.config.replay is None:
        return None
    known = Spending.of_run(ctx.run_dir)
    return ModelUse(
        name=ctx.config.model or "a recording",
        replayed=ctx.config.replay is not None,
        dollars=known.spent.dollars,
        requests=known.spent.requests,
        prompt_tokens=known.spent.prompt,
        completion_tokens=known.spent.completion,
        untold=known.spent.untold,
        guessed_tokens=known.spent.guessed,
        tokens_by_step={step: spent.tokens for step, spent in known.by_step.items()},
        dollars_by_step={step: spent.dollars for step, spent in known.by_step.items()},
    )


def _afresh(ctx: RunContext, state: RunState) -> list[Afresh]:
    if not isinstance(ctx.proposals.proposer, Replay):
        return []
    reasons = {step.name: step.reason for step in _steps(state, ctx)}
    return afresh.judged(ctx.proposals.proposer.changes, ctx.ledger.rows, ctx.ledger.stacked(), reasons)


def _advice(ctx: RunContext, session: SessionStart, whole: Whole | None) -> Sequence[str]:
    """What only the user can do, as far as it was measured: one line of torch.compile in the entry."""
    top, base = ctx.stack.top, ctx.stack.base
    changes = "" if top == base else ctx.stack.diff(top, since=base)
    advice = overlay.advice(changes, ctx.config.entry)
    if not any(kept.step == "compile_model" for kept in _kept(ctx)):  # no word on compiling, which may cost a look
        advice += ctx.proposals.advice()
    if whole is None or whole.over_compile is None or whole.over_compile.interval().ci_low <= 1:
        advice += compile_advice(session.compile, ctx.referee.delta)
    return advice


def compile_advice(modes: Mapping[str, Comparison], delta: float) -> list[str]:
    """One line of torch.compile in its best mode, where it gains more than the noise `delta`."""
    intervals = {mode: found.interval(delta) for mode, found in modes.items()}
    mode, best = max(intervals.items(), key=lambda item: item[1].median, default=("", None))
    if best is None or best.ci_low <= 1 + delta:
        return []
    return [
        f"One line of torch.compile (mode {mode}) where the model is built makes the unmodified target "
        f"{best.median:.2f}x faster ({best.ci_low:.2f} to {best.ci_high:.2f})."
    ]
