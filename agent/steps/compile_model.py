"""Compile the model, with the settings that are safe on this platform, never in the entry script.

On a CPU what one line of torch.compile gives is measured here: a minute in which other changes are proven before.
"""

from __future__ import annotations

from dataclasses import replace

from agent.baselines import compare, leave_out
from agent.context import RunContext
from agent.prepare import adopt, compile_plain
from agent.records import measurements
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step
from tools.judging import accept

STEP = "compile_model"


def run(state: RunState, ctx: RunContext) -> Update:
    if STEP in ctx.config.steps:
        measure_plain(ctx)
    return climbing_step(state, ctx, STEP)


def measure_plain(ctx: RunContext) -> None:
    """What one line of torch.compile gives, if that is not known and there is time: also the first attempt of this
    step, where nothing was kept before it.
    """
    ctx.budget.begin_compiling()
    found, noise = measurements.session_start(ctx.run_dir), ctx.referee.noise
    assert found is not None and noise is not None, "the baseline comes first"
    if found.knows_compiling or not ctx.builds.compile_baselines or ctx.budget.used_up():
        return
    compiled = compile_plain(ctx)
    found = found.model_copy(update=compiled.told)
    if compiled.beside:
        measured = compare(ctx, "baselines, plain", compiled.beside, accept.FIRST_LOOK)
        looked = ctx.referee.check_timed(measured.outputs)
        for mode in compiled.builds:
            if failed := measured.comparisons[mode].failed or looked.reason:
                leave_out(ctx, found.compile_failed, mode, failed)
            else:
                found.compile_screened[mode] = measured.comparisons[mode]
        if noise.usable:
            left = measured if looked.verdict else replace(measured, outputs=())
            adopt(ctx, compiled.candidates, left, looked)
    measurements.keep_session(found, ctx.run_dir)
    ctx.use(found)
    ctx.budget.begin_compiling()
