"""Compile the model, with the settings that are safe on this platform, never in the entry script.

On a CPU what one line of torch.compile gives is measured here, where a change to the target's source is the same; else
beside the whole stack: until then changes are proven in a tenth of the time.
"""

from __future__ import annotations

from dataclasses import replace

from agent.baselines import compare, leave_out
from agent.context import RunContext
from agent.prepare import adopt, candidates_beside, compile_plain, plain_modes
from agent.records import measurements
from agent.records.measurements import PLAIN
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step
from tools.judging import accept

STEP = "compile_model"


def run(state: RunState, ctx: RunContext) -> Update:
    known = measurements.session_start(ctx.run_dir)
    is_open = known is not None and PLAIN not in known.modes and STEP in ctx.config.steps
    if is_open and PLAIN in candidates_beside(ctx, plain_modes(ctx)):
        measure_plain(ctx)
    return climbing_step(state, ctx, STEP)


def measure_plain(ctx: RunContext) -> None:
    """What one line of torch.compile gives, if that is not known and there is time: also the first attempt of this
    step, where that is the same.
    """
    ctx.budget.begin_compiling()
    found, noise = measurements.session_start(ctx.run_dir), ctx.referee.noise
    assert found is not None and noise is not None, "the baseline comes first"
    if PLAIN in found.modes or not plain_modes(ctx) or ctx.budget.used_up(attempts=2):
        return
    compiled = compile_plain(ctx)
    failed_before = found.compile_failed
    found = found.model_copy(update=compiled.told)
    found.compile_failed = {**failed_before, **compiled.failed}
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
