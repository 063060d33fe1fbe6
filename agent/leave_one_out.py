"""Leave-one-out: measure the stack without each commit, and drop commits that add nothing to it.

A commit is dropped only after a fresh comparison whose upper bound lies below the noise floor, and after the smaller
stack has passed the same correctness check as any candidate.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.records import measurements
from agent.records.attempts import Attempt, leave_out_id
from agent.records.ledger import LedgerRow
from agent.reporting.progress import StackShrank, VerdictReached
from agent.repository.stack import StackCommit
from tools.candidate import Candidate
from tools.errors import IncumbentFails
from tools.judging import accept
from tools.judging.measure import ComparisonRequest, enough_to_weigh
from tools.judging.verdict import Verdict, of_failed
from tools.judging.worker import Build, WorkerFault

STEP = "compose_stack"


def weigh(ctx: RunContext) -> None:
    """Try every commit once, the smallest gain first; each drop makes a new version of the stack.

    The last commit is skipped if it was timed by itself: its gain was measured over exactly this smaller stack.
    """
    commits = ctx.stack.commits()
    if not _row(ctx, commits[-1]).below:
        del commits[-1]
    for commit in sorted(commits, key=lambda commit: _gain(_row(ctx, commit))):
        if len(ctx.stack.commits()) < 2:
            return
        if ctx.budget.hurried():
            return
        attempt_id = leave_out_id(commit.attempt_id)
        if ctx.ledger.find(attempt_id) is None:
            _weigh_one(ctx, commit, attempt_id)


def _row(ctx: RunContext, commit: StackCommit) -> LedgerRow:
    row = ctx.ledger.find(commit.attempt_id)
    assert row is not None, "the stack follows the ledger"
    return row


def _gain(row: LedgerRow) -> float:
    return row.speedup.median if row.speedup is not None else 1.0


def _weigh_one(ctx: RunContext, commit: StackCommit, attempt_id: str) -> None:
    top, top_commit, title = ctx.builds.top(), ctx.stack.top, commit.title
    without = ctx.records.stack_without(commit.attempt_id)
    if without is None:
        verdict = Verdict(name="refused", reason="later changes are built on it, so it cannot be left out alone")
    else:
        ctx.display.subject = f"the stack without: {title}"
        verdict = _judge(ctx, commit.attempt_id, without, top)
    candidate = Candidate(
        step=STEP,
        title=title,
        key=_row(ctx, commit).key,
        role="leave_one_out",
        rationale="Every commit must earn its place again.",
        diff=ctx.stack.diff(without, since=top_commit) if without else "",
    )
    attempt = Attempt(id=attempt_id, candidate=candidate, base=top_commit)
    kept = verdict.name == "kept"
    left = [name for name in ctx.ledger.stacked() if name != commit.attempt_id]
    ctx.records.add(attempt, verdict, left if kept else None)
    ctx.progress.emit(VerdictReached(attempt_id, candidate.shown, verdict.name, verdict.reason, verdict.speedup))
    if kept:
        ctx.records.follow()
        ctx.progress.emit(StackShrank(title, commit.commit, len(ctx.stack.commits()), verdict.reason))


def _judge(ctx: RunContext, attempt_id: str, without: str, top: Build) -> Verdict:
    """Is the stack as good without it? The verdict is that of the smaller stack."""
    delta = ctx.referee.delta
    try:
        smaller = ctx.builds.of(without)
    except WorkerFault as fault:
        return Verdict(name="broken", reason=f"the stack does not run without it: {fault}")
    request = ComparisonRequest(
        f"leave out {attempt_id}",
        smaller,
        {"top": top},
        enough_to_weigh(delta, ctx.budget.too_dear),
        progress=lambda n: ctx.display.say("measuring its worth", n, accept.next_look(n)),
        doing=ctx.display.say,
    )
    try:
        found = ctx.referee.clock.compare(request).only
    except IncumbentFails as failure:
        return Verdict(name="broken", reason=f"the stack does not run for long without it: {failure}")
    evidence = {"worth": found.summary(delta)}
    if failed := of_failed(found, evidence):
        return failed
    if accept.still_worth(found.log_ratios, delta) == "dropped":  # by a floor that may be wider than it need be
        delta = ctx.referee.narrow_noise().delta
        measurements.keep_noise(ctx.run_dir, ctx.referee.aa)
    worth = found.interval(delta)
    if accept.still_worth(found.log_ratios, delta) != "dropped":
        reason = f"it stays: worth {worth.median:.3f}x ({worth.ci_low:.3f} to {worth.ci_high:.3f})"
        return Verdict(name="slower", reason=reason, evidence=evidence)
    checked = ctx.referee.check(smaller)
    if checked.finding.verdict:
        return Verdict(name=checked.finding.verdict, reason=f"without it: {checked.finding.reason}", evidence=evidence)
    if broken := ctx.referee.tests_broken_by(smaller):
        return Verdict(name="wrong", reason=f"without it the target's test {broken[0]} fails", evidence=evidence)
    reason = f"worth at most {worth.ci_high - 1:+.1%}, which is below the noise floor of {delta:.1%}"
    return Verdict(name="kept", reason=reason, evidence=evidence)
