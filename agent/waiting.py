"""What was found right and waits to be timed together with a later change, of the step that its `timed_with` names.

On a GPU a call of many small launches waits for Python, and shows nothing of what a kernel less saves: that shows once
torch.compile has taken Python away. Such changes are stacked on the top provisionally, each made on those before it.
The first change of that step is made on all of them, and timed against the proven top: kept, it brings them along;
otherwise they are given up, and tried by themselves at the end. Refuses to put anything under a change that is timed by
itself, whose gain would then be theirs.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.records.attempts import ON_WAITING, Attempt
from agent.repository.stack import Conflict
from agent.state import RunState
from agent.step_names import STEPS
from tools.candidate import Candidate


def candidates(state: RunState, ctx: RunContext, step: str) -> tuple[list[Candidate], str, list[str]]:
    """Candidates of a step or why there are none, and all that waits; `ctx.waiting` is what they are made on."""
    ctx.waiting, waiting = [], _still(state, ctx, step)
    if waiting and _waited_for(ctx, waiting) == step:
        ctx.waiting = waiting
        found, reason = ctx.propose(step)
        # another title: by itself it may be tried after that
        return [each.model_copy(update={"title": f"{each.title}{ON_WAITING}"}) for each in found], reason, waiting
    found, reason = ctx.propose(step)
    by_itself = [each for each in found if not each.timed_with]
    if not waiting or not found or by_itself:
        return by_itself or found, reason, waiting
    ctx.waiting = waiting
    found, reason = ctx.propose(step)
    return [each for each in found if each.timed_with], reason, waiting


def after(attempt: Attempt, verdict: str, state: RunState, ctx: RunContext) -> list[str]:
    """What waits when an attempt was judged."""
    if verdict == "neutral" and attempt.candidate.timed_with:
        ctx.waiting = [*attempt.with_shadow, attempt.id]
        ctx.adopt_build(attempt, ctx.base)
        return list(ctx.waiting)
    waiting = list(state.get("waiting", []))
    brought_along = verdict == "kept" and set(waiting) <= set(attempt.with_shadow)
    in_vain = waiting and attempt.candidate.step == _waited_for(ctx, waiting)
    if brought_along or in_vain:
        ctx.waiting = []
        return []
    return waiting


def _waited_for(ctx: RunContext, waiting: list[str]) -> str:
    return ctx.attempts.load(waiting[0]).candidate.timed_with


def _still(state: RunState, ctx: RunContext, step: str) -> list[str]:
    """Of what waits, what waits for this step or a later one and fits on the top, which may have grown since."""
    known = state.get("waiting", [])
    if not known or STEPS.index(step) > STEPS.index(_waited_for(ctx, known)):
        return []
    found: list[str] = []
    for name in known:
        changes = [ctx.change_of(each) for each in (*found, name)]
        if not isinstance(ctx.stack.build(changes, on=ctx.stack.top), Conflict):
            found.append(name)
    return found
