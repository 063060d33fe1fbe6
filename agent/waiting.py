"""What was found right and waits to be timed together with a later change, of the step that its `timed_with` names.

On a GPU a call of many small launches waits for Python, and shows nothing of what a kernel less saves: that shows once
torch.compile has taken Python away. Such changes are checked, each on those before it, and their verdict is `right`.
The first change of that step is made on all of them, and timed against the proven top: kept, it brings them along;
otherwise they are given up, and tried by themselves at the end. What waits is read off the ledger. Refuses to put
anything unproven under a change that is timed by itself, whose gain would then be theirs.
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
    """`only_checked`: nothing that is timed by itself, and nobody is asked who takes time or money."""
    waits = what_waits(ctx, step)
    if waits and _waited_for(ctx, waits[0]) == step:
        together = ctx.proposals.propose(step, waits, looking=True)[0]
        if together:  # in another role: by itself it may be tried after that
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
    return Offer(*ctx.proposals.propose(step, by_itself=True))  # nothing of it can be made on what waits


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
