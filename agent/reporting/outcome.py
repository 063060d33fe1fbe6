"""The end of a run: hand over the result, write the report, say the last line.

Does not compute: every number comes from the ledger or from a comparison that is kept in the run's folder.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel

from agent import environment
from agent.context import RunContext, stack_profile
from agent.llm import account
from agent.owed import USED_UP
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
    Cost,
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
from tools.judging.accept import speedup_interval
from tools.judging.comparison import Comparison
from tools.observation import Observation
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
    ctx.progress.emit(
        RunEnded(made.outcome, str(page), exported.branch, result, made.speedup, made.speedup_over_compile)
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
    delta = ctx.referee.delta
    notes = [*_notes(ctx, state, folder, exported, _of_the_pace(unsettled, whole)), session.own_tests.note]
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
        final=_latency(ctx, whole.over_eager, "candidate", delta) if whole else None,
        workloads=_workloads(ctx, whole, delta),
        time=time_shares(measurements.profile(folder.path, "baseline"), _profile_after(ctx)),
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


def _notes(ctx: RunContext, state: RunState, folder: RunFolder, exported: Exported, of_the_pace: str) -> list[str]:
    facts = TargetFacts.model_validate_json((folder.path / "target.json").read_bytes())
    found = target_notes(folder.path, ctx.stack)
    notes = [*found, exported.note, *since_it_began(ctx.config.target, facts.tree_hash)]
    if any(USED_UP in result["reason"] for result in state.get("results", {}).values()):
        notes.append("The time budget was used up; what was proven until then is in the result.")
    noise = ctx.referee.noise
    if noise is not None and not noise.usable:
        notes.append(f"This machine is too noisy to keep anything: {noise.reason}.")
    if of_the_pace:
        notes.append(of_the_pace)
    after = _profile_after(ctx)
    if after is not None and after.other_path:
        notes.append("Under the profiler the stack's code seems to take another path: where its time goes is unknown.")
    notes += _not_observed(folder.path)
    for note in notes[len(found) :]:
        ctx.progress.emit(Note(note))
    return notes


def since_it_began(target: Path, known_hash: str) -> list[str]:
    """What is to be said when the target is not what it was; a target that is gone keeps nobody from the result."""
    try:
        if tree_hash(target) == known_hash:
            return []
    except TargetUnreadable as error:
        return [f"Whether the target has changed is not known; the result is for what it was: {error.message}"]
    return ["The target's files have changed since the run began; the result is for what they were then."]


def _not_observed(run_dir: Path) -> list[str]:
    """What could not be made of what was seen of the original."""
    file = run_dir / "profiles" / "observed.json"
    return Observation.model_validate_json(file.read_bytes()).notes if file.is_file() else []


def _of_the_pace(unsettled: str, whole: Whole | None) -> str:
    """What is to be said of a whole that was measured while the machine changed its pace."""
    if not unsettled:
        return ""
    if whole is None:
        return f"The whole could not be measured: {unsettled}."
    counted = "restarts in which the original was slow count as if it had not been"
    return f"Gains over the unmodified target are counted low: {unsettled}; {counted}."


def _profile_after(ctx: RunContext) -> Profile | None:
    return measurements.profile(ctx.run_dir, stack_profile(ctx.stack.top))


def _latency(
    ctx: RunContext, found: Comparison, side: str, delta: float | None = None, case: int | None = None
) -> Latency:
    """Microseconds of a call: of one case, or of all cases one after the other."""
    rows = found.incumbent_us if side == "incumbent" else found.candidate_us
    times = [sum(row) if case is None else row[case] for row in rows]
    cases = ctx.workload.cases if case is None else (ctx.workload.cases[case],)
    tokens = sum(float(c.work.get("tokens", 0)) for c in cases)
    speedup = eager_us = None
    if delta is not None:
        ratios = found.log_ratios if case is None else [row[case] for row in found.case_log_ratios]
        speedup = speedup_interval(ratios, delta)
        eager_us = median(sum(row) if case is None else row[case] for row in found.incumbent_us)
    return Latency(
        latency_us=median(times),
        latency_us_low=min(times),
        latency_us_high=max(times),
        tokens_per_s=tokens / median(times) * 1e6 if tokens else None,
        eager_us=eager_us,
        speedup=speedup,
    )


def _baselines(ctx: RunContext, session: SessionStart, delta: float) -> Baselines:
    modes = {mode: _latency(ctx, found, "candidate", delta) for mode, found in session.compile.items()}
    modes |= {mode: _screened(ctx, found) for mode, found in session.compile_screened.items()}
    modes |= {mode: Latency(failed=reason) for mode, reason in session.compile_failed.items()}
    return Baselines(eager=_latency(ctx, session.aa, "incumbent"), compile=modes, best=session.best_compile())


def _screened(ctx: RunContext, found: Comparison) -> Latency:
    made = _latency(ctx, found, "candidate")
    eager_us = median(sum(row) for row in found.incumbent_us)
    return made.model_copy(update={"about": math.exp(median(found.log_ratios)), "eager_us": eager_us})


def _workloads(ctx: RunContext, whole: Whole | None, delta: float) -> list[Workload]:
    if whole is None:
        return []
    found = whole.over_eager
    return [
        Workload(
            name=case.name,
            before=_latency(ctx, found, "incumbent", case=i),
            after=_latency(ctx, found, "candidate", case=i),
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
    """With what was kept later, together with a change of another step."""
    results = state.get("results", {})
    rows = [ctx.ledger.find(name) for name in ctx.ledger.stacked()]
    later = Counter(row.step for row in rows if row is not None and row.verdict == "right")
    found = list[Step]()
    for name in STEPS:
        told: Mapping[str, Any] = results.get(name) or {"status": "skipped", "reason": "the run ended before it"}
        found.append(Step.model_validate({"name": name, **told, "kept": told.get("kept", 0) + later[name]}))
    return found


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
    found, left_out = [], {leave_out_id(row.attempt_id): row.attempt_id for row in ctx.ledger.rows}
    for row in ctx.ledger.rows:
        found.append(
            Attempt(
                id=row.attempt_id,
                step=row.step,
                key=row.key,
                role=row.role,
                title=row.title,
                verdict=row.verdict,
                why=row.reason,
                evidence=row.evidence,
                cost=Cost.model_validate(row.cost),
                predicted_gain=row.predicted_gain,
                speedup=row.speedup,
                leaves_out=left_out.get(row.attempt_id, ""),
            )
        )
    return found


def _model_use(ctx: RunContext) -> ModelUse | None:
    if ctx.config.model is None and ctx.config.replay is None:
        return None
    known = account.kept(ctx.run_dir)
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
