"""Profile the baseline: the speed of the target, the noise of the machine, the gain of plain torch.compile."""

from __future__ import annotations

from dataclasses import replace

from agent import schedule
from agent.baselines import take
from agent.climb import is_likely
from agent.context import RunContext
from agent.prepare import adopt, prepare
from agent.records import measurements
from agent.records.atomic_file import write_atomically
from agent.records.measurements import SessionStart
from agent.reporting.progress import Note
from agent.state import RunState, Update, ended
from agent.steps.summing_up import finish, start
from tools.judging.referee import ITSELF
from tools.judging.worker import WorkerFault
from tools.profiler.causes import launching_decides

STEP = "profile_baseline"


def run(state: RunState, ctx: RunContext) -> Update:
    start(ctx, STEP)  # this step is never left out: nothing can be judged without it
    known = measurements.session_start(ctx.run_dir)
    if known is None:
        known = measure(ctx)
        measurements.keep_session(known, ctx.run_dir)
    ctx.use(known)
    ctx.display.subject = "the original"
    on_gpu = ctx.platform.device == "cuda"
    likely = next((step for step in schedule.FIRST if on_gpu and is_likely(ctx, step)), "")
    profile = None if likely else ctx.builds.profile_original()  # else afterwards: it takes longer
    try:
        seen = ctx.proposals.view().observation.model_dump_json(indent=1, by_alias=True, exclude={"sources"})
        write_atomically(ctx.run_dir / "profiles" / "observed.json", seen + "\n")
    except WorkerFault as fault:
        ctx.progress.emit(Note(f"the original could not be observed, so that nothing is proposed for it: {fault}"))
    noise = ctx.referee.noise
    assert noise is not None
    if not noise.usable:
        ctx.progress.emit(Note(f"this machine is too noisy to keep anything: {noise.reason}"))
    call_us = sum(known.aa.median_us("incumbent"))
    reason = f"{call_us / 1e3:.3g} ms a call, gains above {noise.delta:.1%} can be shown"
    if not call_us:
        reason = "its calls could not be timed"
    if profile is not None and profile.kernels:
        reason += f"; most of it in {profile.primary_bottleneck_component}, {profile.primary_bottleneck_type}"
    update = finish(ctx, ended(STEP, "done", reason))
    waits = profile is not None and launching_decides(profile)
    first = likely or schedule.first(known, noise.delta, on_gpu=on_gpu, waits=waits)
    return {**update, "goto": first if first in ctx.config.steps else ""}


def measure(ctx: RunContext) -> SessionStart:
    """The A/A comparison, with what was compiled in the same restarts, and the target's own tests."""
    own_tests, compiled = prepare(ctx)
    ctx.display.subject = f"the original against itself{' and torch.compile' if compiled.builds else ''}"
    noise, measured = ctx.referee.measure_noise(compiled.beside)
    aa = measured.comparisons[ITSELF]
    found = SessionStart(aa=aa, own_tests=own_tests, **compiled.told)
    outputs = [each for each in measured.outputs if each.side != ITSELF]
    looked = ctx.referee.check_timed(outputs)  # of each by itself only where something is wrong
    left = measured if looked.verdict else replace(measured, outputs=())
    for mode in compiled.builds:
        take(ctx, found.compile, found.compile_failed, mode, left)
    if noise.usable:
        adopt(ctx, compiled.candidates, left, looked)
    elif not ctx.budget.too_dear(aa.wall_s):  # once more: another program may have been busy
        ctx.display.subject = "the original against itself"
        _, again = ctx.referee.measure_noise()
        found.aa = again.only
    return found
