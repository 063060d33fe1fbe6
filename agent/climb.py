"""The climb: propose, apply, verify, measure, decide, then commit or diagnose. One function for each node.

Each function takes the state and the context and returns what changes. All effects are idempotent by attempt id: a
node that runs again after a kill finds what it did before.
"""

from __future__ import annotations

import time

from agent import enablers, schedule
from agent.context import RunContext
from agent.records import measurements
from agent.records.attempts import Attempt
from agent.reporting.progress import CandidateProposed, Note, StackGrew, VerdictReached
from agent.state import RunState, Update
from tools.judging.correctness import Finding
from tools.judging.verdict import Verdict
from tools.judging.worker import Build


def propose(state: RunState, ctx: RunContext) -> Update:
    """The next candidate that has not been tried on this top of the stack, or why there is none."""
    step = state["step"]
    ctx.ended_steps = {name: result["reason"] for name, result in state.get("results", {}).items()}
    if schedule.compiles(step):
        ctx.budget.begin_compiling()
    if (late := too_late(ctx)) and not is_decided(ctx, step):
        return {"attempt": "", "no_more": late}
    tried = [row for row in ctx.ledger.rows if row.step == step and row.is_of_its_step]
    if len(tried) >= ctx.config.attempts:
        return {"attempt": "", "no_more": f"{len(tried)} attempts were made, which is the limit of a step"}
    if tried and schedule.is_early(state, step):
        return {"attempt": "", "no_more": "the rest comes in its turn"}
    name = f"{step}-{len(tried) + 1}"
    to_come = schedule.to_come(state, step, ctx.config.steps)
    if ctx.budget.for_compiling_s:  # which is time for the attempts of these steps
        to_come = [each for each in to_come if not schedule.compiles(each)]
    gains = ctx.proposals.expecting([step, *to_come])
    ctx.budget.reserve(len(gains.keys() - {step}))
    if left_over := _left_over(ctx, name):
        return {"attempt": _begin(ctx, left_over)}
    if (more := schedule.promises_more(gains, step)) and ctx.budget.tight(len(gains)):
        return {"attempt": "", "goto": more, "no_more": f"{more} promises {gains[more]:.2f}×"}
    # before anybody is asked who takes time or money; but a step has one attempt on what others have kept since
    again = tried and (ctx.ledger.rows[-1].step == step or any(row.base == ctx.records.base() for row in tried))
    if again and ctx.budget.hurried() and step in gains:
        return {"attempt": "", "no_more": "what is left of the time budget is kept for the steps after it"}
    candidates, reason = ctx.proposals.propose(step)
    below: tuple[str, ...] = ()
    if not candidates:
        candidates, below = enablers.offer(ctx, step, state.get("shadow", []))
    # in any step: a second try of the same on the same would only be a second chance for chance
    base = ctx.records.base(below)
    new = [candidate for candidate in candidates if candidate.digest not in ctx.ledger.judged_on(base)]
    if not new:
        return {"attempt": "", "no_more": reason or "nothing is left to try"}
    return {"attempt": _begin(ctx, Attempt(id=name, candidate=new[0], base=base, below=below))}


def too_late(ctx: RunContext) -> str:
    """Why no attempt is begun: what is proven is rather measured as a whole than given up for one that does not end."""
    return ctx.budget.used_up(1 if ctx.stack.commits() else 0)


def is_decided(ctx: RunContext, step: str) -> bool:
    """Whether the first attempt of a step got its verdict with the baseline: what is left of it takes no time."""
    return _adopted(ctx, step) is not None and ctx.attempts.verdict(f"{step}-1") is not None


def is_likely(ctx: RunContext, step: str) -> bool:
    """Whether the first attempt of a step was kept when it was measured with the baseline, or is right and to be timed
    once more.
    """
    verdict = ctx.attempts.verdict(f"{step}-1")
    return _adopted(ctx, step) is not None and (verdict is None or verdict.name == "kept")


def _adopted(ctx: RunContext, step: str) -> Attempt | None:
    """The first attempt of a step, where it was measured with the baseline."""
    name = f"{step}-1"
    return None if any(row.attempt_id == name for row in ctx.ledger.rows) else _left_over(ctx, name)


def _left_over(ctx: RunContext, name: str) -> Attempt | None:
    """The next attempt, where it was saved and has not been decided on: by an earlier command, or with the baseline."""
    if not ctx.attempts.has(name):
        return None
    attempt = ctx.attempts.load(name)
    fits = attempt.base == ctx.records.base(attempt.below)
    return attempt if fits and attempt.candidate.digest not in ctx.ledger.judged_on(attempt.base) else None


def _begin(ctx: RunContext, attempt: Attempt) -> str:
    ctx.attempts.save(attempt)
    candidate = attempt.candidate
    ctx.progress.emit(CandidateProposed(attempt.id, candidate.step, candidate.shown, candidate.predicted_gain))
    return attempt.id


def apply(state: RunState, ctx: RunContext) -> Update:
    """Build the candidate's tree; what may not or cannot be applied gets its verdict here."""
    attempt = ctx.attempts.load(state["attempt"])
    found: Build | Verdict
    if attempt.candidate.objection:
        found = Verdict(name="refused", reason=f"a reviewer rejects it: {attempt.candidate.objection}")
    else:
        found = ctx.builds.candidate(attempt)
    if isinstance(found, Verdict):
        ctx.attempts.save_verdict(attempt.id, found)
    return {"verdict": found.name if isinstance(found, Verdict) else ""}


def verify(state: RunState, ctx: RunContext) -> Update:
    """Is it right? What fails gets its verdict here."""
    attempt = ctx.attempts.load(state["attempt"])
    ctx.display.subject, begun = attempt.candidate.shown, time.monotonic()
    kernels = ctx.builds.looked_at_kernels(attempt)
    faults = "; ".join(kernels.faults)
    finding = Finding("broken", faults) if faults else ctx.builds.checked(attempt).finding
    if kernels.evidence():
        finding.evidence["kernels"] = kernels.evidence()
    if schedule.compiles(attempt.candidate.step):
        ctx.budget.learn(time.monotonic() - begun)
    if finding.verdict is None:
        return {"verdict": ""}
    verdict = finding.as_verdict()
    ctx.attempts.save_verdict(attempt.id, verdict)
    return {"verdict": verdict.name}


def measure(state: RunState, ctx: RunContext) -> Update:
    """Is it faster? By the referee, against the top of the stack."""
    attempt = ctx.attempts.load(state["attempt"])
    verdict = ctx.attempts.verdict(attempt.id)
    if verdict is None:
        ctx.display.subject = attempt.candidate.shown
        verdict = ctx.referee.time(ctx.builds.checked(attempt), ctx.builds.top(), attempt.id)
        measurements.keep_noise(ctx.run_dir, ctx.referee.aa)
        ctx.attempts.save_verdict(attempt.id, verdict)
    return {"verdict": verdict.name}


def decide(state: RunState, ctx: RunContext) -> Update:
    """Write the attempt to the ledger, with what the stack is from now on, before anything is done about it."""
    attempt = ctx.attempts.load(state["attempt"])
    verdict = ctx.attempts.verdict(attempt.id)
    assert verdict is not None, "every way to this node leaves a verdict"
    stack = [*ctx.ledger.stacked(), *attempt.below, attempt.id] if verdict.name == "kept" else None
    ctx.records.add(attempt, verdict, stack)
    if verdict.name != "kept":
        ctx.builds.forget_cache(attempt)
        ctx.builds.forget(attempt)
    ctx.progress.emit(
        VerdictReached(attempt.id, attempt.candidate.shown, verdict.name, verdict.reason, verdict.speedup)
    )
    return {"verdict": verdict.name}


def commit(state: RunState, ctx: RunContext) -> Update:
    """Stack what was proven, with what it was proven on."""
    attempt = ctx.attempts.load(state["attempt"])
    verdict = ctx.attempts.verdict(attempt.id)
    top = ctx.records.follow()
    ctx.builds.adopt(attempt, top)
    ctx.keep_time_back()
    ctx.progress.emit(
        StackGrew(
            attempt.candidate.step,
            attempt.candidate.shown,
            top,
            len(ctx.stack.commits()),
            verdict.speedup if verdict else None,
        )
    )
    return {"attempt": "", "shadow": [name for name in state.get("shadow", []) if name not in attempt.below]}


def diagnose(state: RunState, ctx: RunContext) -> Update:
    """What a candidate that was not kept is still good for: to enable, or to be tried on enablers."""
    attempt = ctx.attempts.load(state["attempt"])
    shadow = list(state.get("shadow", []))
    verdict = state["verdict"]
    if verdict == "neutral" and attempt.candidate.enables:
        ctx.progress.emit(Note(f"kept in reserve: {attempt.candidate.title} (it enables {attempt.candidate.enables})"))
        return {"attempt": "", "shadow": [*shadow, attempt.id]}
    usable = verdict in ("neutral", "slower", "broken") and shadow and not attempt.below
    if usable and not ctx.budget.used_up():
        candidate = attempt.candidate.model_copy(update={"role": "on_enablers"})
        name = f"{attempt.id}-on-enablers"
        again = Attempt(id=name, candidate=candidate, base=attempt.base, below=tuple(shadow))
        return {"attempt": _begin(ctx, again)}
    return {"attempt": ""}
