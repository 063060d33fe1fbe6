"""Compose the stack: retry what gained nothing alone, weigh every commit, and measure the whole.

A commit is dropped only if the upper bound of its worth is below the noise floor, and the rest is judged as a whole.
A whole that is not faster than the original in this last measurement is not handed over; where the machine is too
unsteady to measure it, the changes that were proven one by one are handed over, and the report says so.
"""

from __future__ import annotations

from dataclasses import replace

from agent.baselines import best_mode, compiled, confirm_best, measure_tuned, take_beside
from agent.context import RunContext, stack_profile
from agent.leave_one_out import weigh
from agent.records import measurements
from agent.records.attempts import Attempt
from agent.records.measurements import Whole
from agent.reporting.progress import Note, StackShrank, VerdictReached
from agent.state import RunState, Update, climb, ended
from agent.steps.summing_up import finish, start, summary
from tools.candidate import Candidate, Key
from tools.judging.verdict import Verdict

STEP = "compose_stack"


def run(state: RunState, ctx: RunContext) -> Update:
    """Entered at most three times: to retry, to weigh and measure the whole, and once more after going back."""
    ctx.budget.begin_compiling()
    if state.get("step") == STEP and state.get("no_more"):
        return _weigh_and_measure(state, ctx)
    if not start(ctx, STEP):
        _measure_whole(ctx)
        return finish(ctx, ended(STEP, "skipped", "left out by --steps; the whole was measured all the same"))
    _compile_plain(ctx)
    return climb(STEP)


def _compile_plain(ctx: RunContext) -> None:
    """Before anything is tried again, so that the whole is compared with it."""
    session = measurements.session_start(ctx.run_dir)
    assert session is not None, "the baseline comes first"
    best, is_late = best_mode(ctx, session), ctx.budget.used_up(attempts=1)
    if best and best not in session.modes and ctx.stack.commits() and not is_late:
        compiled(ctx, [best], session.compile_failed)
        measurements.keep_session(session, ctx.run_dir)


def _weigh_and_measure(state: RunState, ctx: RunContext) -> Update:
    ctx.budget.reserve(0)  # no step is to come
    if len(ctx.stack.commits()) > 1:
        weigh(ctx)
    if not state.get("returned") and not ctx.budget.used_up():
        measure_tuned(ctx)
        moved = _moved_to(ctx)
        if moved:
            ctx.progress.emit(Note(f"{moved} has something that has not been tried: going back to it once"))
            return {"step": STEP, "goto": moved, "returned": True, "climbing": False, "no_more": ""}
    _measure_whole(ctx)
    update = summary(state, ctx, STEP)
    return finish(ctx, update)


def _moved_to(ctx: RunContext) -> str | None:
    """The step that now proposes something it has not proposed before; of several the one that promises most."""
    known, gains = {(row.step, row.key) for row in ctx.ledger.rows if row.role == "first"}, dict[str, float]()
    for step in ctx.config.steps:
        if step in ("profile_baseline", "locate_layers", STEP):
            continue
        candidates, _ = ctx.proposals.propose(step, looking=True)
        new = [each.predicted_gain or 1.0 for each in candidates if (step, each.key) not in known]
        if new:
            gains[step] = new[0]
    return max(gains, key=lambda step: gains[step], default=None)


def _measure_whole(ctx: RunContext) -> None:
    """Fresh final comparisons: over eager, over the best plain torch.compile, and with default malloc."""
    ctx.budget.finish()
    known = measurements.whole(ctx.run_dir)
    if not ctx.stack.commits():
        confirm_best(ctx)
        return
    if known is None or known.top != ctx.stack.top:
        known = _compare_whole(ctx)
    if known is not None and not ctx.budget.too_dear(ctx.budget.restart_s):  # last: the report can do without it
        ctx.display.subject = "the whole stack"
        ctx.builds.profile(stack_profile(ctx.stack.top), ctx.builds.top())


def _compare_whole(ctx: RunContext) -> Whole | None:
    """Measure and store; None where the stack was given up."""
    session = measurements.session_start(ctx.run_dir)
    assert session is not None
    pristine, top = ctx.builds.pristine_checked().build, ctx.builds.top()
    ctx.display.subject = "the whole stack"
    best = best_mode(ctx, session)
    if best and best not in session.modes and ctx.builds.compile_baselines[best].cache is None:
        best = "" if ctx.budget.used_up(attempts=1) else best
    builds = compiled(ctx, [best], session.compile_failed) if best else {}
    measurements.keep_session(session, ctx.run_dir)
    best = next(iter(builds), "")
    beside = {mode: each for mode, each in builds.items() if each.key != top.key}
    measured = ctx.referee.report_on("whole stack", pristine, {"stack": top, **beside})
    over_eager = measured.comparisons["stack"]
    if best and best not in beside:  # it is the stack, which is not timed beside itself
        measured = replace(measured, comparisons={**measured.comparisons, best: over_eager})
    verdict = ctx.referee.check_whole(over_eager, measured.outputs_of("stack"))
    if verdict.name == "inconclusive":
        confirm_best(ctx)
        over_eager = over_eager.model_copy(update={"unsettled": verdict.reason})
        return measurements.keep(Whole(top=ctx.stack.top, over_eager=over_eager), ctx.run_dir / "whole.json")
    if verdict.name != "kept":
        _give_up(ctx, verdict)
        confirm_best(ctx)
        return None
    found = Whole(top=ctx.stack.top, over_eager=over_eager)
    if best and best not in session.compile and not take_beside(ctx, session, best, measured):
        return _compare_whole(ctx)  # with the next best
    if best and not measured.comparisons[best].failed:
        found.over_compile = over_eager.over(measured.comparisons[best])
    measurements.keep(found, ctx.run_dir / "whole.json")
    if ctx.platform.device == "cpu" and not ctx.budget.too_dear(over_eager.wall_s):
        unset = ctx.referee.report_on("whole stack, default malloc", pristine, {"stack": top}, malloc=False)
        found.default_malloc = None if unset.only.failed else unset.only
    return measurements.keep(found, ctx.run_dir / "whole.json")


def _give_up(ctx: RunContext, verdict: Verdict) -> None:
    """Empty the stack: its changes were proven one by one, but not together."""
    why = "What is handed over must be right and faster than the original."
    candidate = Candidate(
        step=STEP,
        title="The whole stack, measured once more",
        rationale=why,
        diff="",
        key=Key("compose_stack", "the whole stack"),
        role="whole",
    )
    attempt = Attempt(id=f"{STEP}-whole", candidate=candidate, base=ctx.stack.top)
    ctx.records.add(attempt, verdict, [])
    ctx.progress.emit(VerdictReached(attempt.id, candidate.title, verdict.name, verdict.reason, verdict.speedup))
    for left, commit in reversed(list(enumerate(ctx.stack.commits()))):
        ctx.progress.emit(StackShrank(commit.title, commit.commit, left, verdict.reason))
    ctx.records.follow()
