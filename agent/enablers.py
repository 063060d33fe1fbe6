"""Correct changes that gained nothing by themselves and may make another one possible: the shadow stack."""

from __future__ import annotations

from collections.abc import Iterable

from agent.context import RunContext
from agent.repository.stack import Conflict
from tools.candidate import Candidate


def offer(ctx: RunContext, step: str, shadow: Iterable[str]) -> tuple[list[Candidate], tuple[str, ...]]:
    """What a step can try only on changes that say that they enable it, and the attempts that made these."""
    below = _that_fit(ctx, (name for name in shadow if step in ctx.attempts.load(name).candidate.enables))
    found = ctx.proposals.propose(step, below, looking=True)[0] if below else []
    return [each.model_copy(update={"role": "on_enablers"}) for each in found], below


def _that_fit(ctx: RunContext, attempts: Iterable[str]) -> tuple[str, ...]:
    """As far as they fit on the top of the stack, in order."""
    found: list[str] = []
    for name in attempts:
        changes = [ctx.records.change_of(each) for each in (*found, name)]
        if not isinstance(ctx.stack.build(changes, on=ctx.stack.top), Conflict):
            found.append(name)
    return tuple(found)
