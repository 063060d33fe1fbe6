"""Start and end of a climbing step."""

from __future__ import annotations

from agent import schedule
from agent.budget import USED_UP
from agent.climb import is_decided, too_late
from agent.context import RunContext
from agent.reporting.progress import Note, StepEnded, StepStarted
from agent.state import RunState, Update, climb, ended
from agent.step_names import STEPS
from tools.profiler.ceilings import BOUNDED


def climbing_step(state: RunState, ctx: RunContext, step: str, nothing_because: str = "") -> Update:
    """Ask for the climb, or sum it up when it is over. `nothing_because`: why there is nothing to climb, if so."""
    if state.get("step") == step and state.get("no_more"):
        if state.get("goto"):
            ctx.progress.emit(Note(f"there may not be time for all that is left: first {state['no_more']}"))
            return {"step": "", "climbing": False, "no_more": ""}
        if schedule.is_early(state, step):
            if not ctx.budget.used_up(attempts=2):
                ctx.display.subject = "the original"
                ctx.builds.profile_original()
            return {"step": "", "climbing": False, "goto": "", "no_more": ""}
        return finish(ctx, summary(state, ctx, step))
    if not start(ctx, step):
        return finish(ctx, ended(step, "skipped", "left out by --steps"))
    if schedule.compiles(step):
        ctx.budget.begin_compiling()
    late = too_late(ctx)
    why = nothing_because or ("" if late and is_decided(ctx, step) else late) or _too_little(ctx, step)
    if not why:
        return climb(step)
    if any(row.step == step for row in ctx.ledger.rows):  # the run went back to it
        return finish(ctx, summary({**state, "no_more": why}, ctx, step))
    return finish(ctx, ended(step, "skipped", why))


def _too_little(ctx: RunContext, step: str) -> str:
    """Why no gain of this step could be shown, by the profile; empty when one could."""
    if ctx.config.record_clock or ctx.config.replay_clock:
        return ""  # profiles are not in that file, and what is judged again must be judged alike
    most, delta = ctx.records.at_most(step), ctx.referee.delta
    if step not in BOUNDED or most is None or most.if_free is None or most.if_free >= 1 + delta:
        return ""
    return (
        f"if all that it works on took no time, that would be {most.if_free:.3f}×, and below {1 + delta:.3f}× nothing "
        "can be shown here"
    )


def start(ctx: RunContext, step: str) -> bool:
    """Report the start of a step; False when the user left it out."""
    if step not in ctx.config.steps:
        return False
    ctx.progress.emit(StepStarted(step))
    return True


def summary(state: RunState, ctx: RunContext, step: str) -> Update:
    """Count attempts and kept ones in the ledger, which is right also after a kill."""
    rows = [row for row in ctx.ledger.rows if row.step == step]
    kept = sum(row.verdict == "kept" and row.role != "leave_one_out" for row in rows)
    if rows:
        why = state.get("no_more", "")
        return ended(step, "done", f"nothing more to try: {why}" if kept and why else why, kept, len(rows))
    return ended(step, "nothing", state.get("no_more", "nothing to try"))


def cut_short(state: RunState, ctx: RunContext) -> RunState:
    """What came of a walk that the budget ended, with the step it was in."""
    results = dict(state.get("results", {}))
    step = next((name for name in STEPS if name not in results), STEPS[-1])
    update = finish(ctx, summary({**state, "no_more": USED_UP}, ctx, step))
    return {**state, "results": {**results, **update["results"]}}


def finish(ctx: RunContext, update: Update) -> Update:
    """Report the end of a step."""
    step = update["step"]
    result = update["results"][step]
    most = ctx.records.at_most(step)
    result["at_most"] = most.speedup if most else None
    ctx.progress.emit(StepEnded(step, result["status"], result["reason"], result["kept"]))
    return update
