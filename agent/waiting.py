"""Correct changes whose timing is deferred to a later step, the one that their `timed_with` names.

On a GPU a call of many small launches is bound by Python, so that removing one kernel shows only after torch.compile.
Such changes are checked, each on top of those before it, and get the verdict `right`. The first change of the later
step is made on all of them and timed against the proven top. If it is kept, so are they; otherwise `compose_stack`
tries them one by one. A change that is timed by itself never has an unproven one below it, which could be the cause
of the gain.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.context import RunContext
from agent.records.attempts import Attempt
from agent.repository.stack import Conflict
from agent.step_names import STEPS
from tools.candidate import Candidate


@dataclass(frozen=True)
class Offer:
    """What a step tries next, or why there is nothing."""

    candidates: list[Candidate]
    reason: str = ""
    below: tuple[str, ...] = ()
    """The attempts that these were made on, beside the stack."""


def offer(ctx: RunContext, step: str, *, only_checked: bool = False) -> Offer:
    """`only_checked`: a dry run for proposers that cost time or money, and nothing that is timed by itself."""
    waits = what_waits(ctx, step)
    if waits and _waited_for(ctx, waits[0]) == step:
        together = ctx.proposals.propose(step, waits, looking=True)[0]
        if together:  # a try without them, in the role "first", may follow
            return Offer([each.model_copy(update={"role": "with_waiting"}) for each in together], below=waits)
    found, reason = ctx.proposals.propose(step, looking=only_checked)
    by_itself = [each for each in found if not each.timed_with]
    if not found or (by_itself and not only_checked):
        return Offer(by_itself, reason)
    if not waits:
        return Offer([each for each in found if each.timed_with], reason)
    checked = [each for each in ctx.proposals.propose(step, waits, looking=True)[0] if each.timed_with]
    if checked or only_checked:
        return Offer(checked, below=waits)
    return Offer(*ctx.proposals.propose(step, by_itself=True))


def what_waits(ctx: RunContext, step: str) -> tuple[str, ...]:
    """The attempts that wait for a change of this step or a later one, in order, as far as they fit on the top."""
    found: list[str] = []
    for row in ctx.ledger.rows:
        if row.verdict == "right" and may_wait(ctx, step, _waited_for(ctx, row.attempt_id)):
            changes = [ctx.records.change_of(each) for each in (*found, row.attempt_id)]
            if not isinstance(ctx.stack.build(changes, on=ctx.stack.top), Conflict):
                found.append(row.attempt_id)
    return tuple(found)


def may_wait(ctx: RunContext, step: str, timed_with: str) -> bool:
    """Whether the step that would time it is still to come, or has just begun."""
    to_come = timed_with in ctx.config.steps and STEPS.index(step) <= STEPS.index(timed_with)
    return to_come and not any(row.step == timed_with for row in ctx.ledger.rows)


def given_up_with(ctx: RunContext, attempt: Attempt) -> list[str]:
    """The titles of what waited for an attempt that was not kept."""
    below = [ctx.attempts.load(name).candidate for name in attempt.below]
    return [each.title for each in below if each.timed_with == attempt.candidate.step]


def _waited_for(ctx: RunContext, attempt_id: str) -> str:
    return ctx.attempts.load(attempt_id).candidate.timed_with
