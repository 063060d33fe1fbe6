"""Compile the model, with the settings that are safe on this platform, never in the entry script.

On a CPU what one line of torch.compile gives is measured here, where a change to the target's source is the same; else
beside the whole stack: until then changes are proven in a tenth of the time.
"""

from __future__ import annotations

from dataclasses import replace

from agent.baselines import compare, take
from agent.context import RunContext
from agent.prepare import adopt, candidates_beside, compile_plain, plain_modes
from agent.records import measurements
from agent.records.measurements import PLAIN, SessionStart
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step
from tools.judging import accept

STEP = "compile_model"


def run(state: RunState, ctx: RunContext) -> Update:
    known = measurements.session_start(ctx.run_dir)
    if STEP in ctx.config.steps and known is not None and PLAIN not in known.modes:
        ctx.budget.begin_compiling()
        if PLAIN in candidates_beside(ctx, plain_modes(ctx)) and not ctx.budget.used_up(attempts=2):
            _measure_plain(ctx, known)
    return climbing_step(state, ctx, STEP)


def _measure_plain(ctx: RunContext, known: SessionStart) -> None:
    """What one line of torch.compile gives, and with it the first attempt of this step, which is the same."""
    noise = ctx.referee.noise
    assert noise is not None, "the baseline comes first"
    compiled = compile_plain(ctx)
    found = known.model_copy(update=compiled.told)
    found.compile_failed = {**known.compile_failed, **compiled.failed}
    if compiled.beside:
        measured = compare(ctx, "baselines, plain", compiled.beside, accept.FIRST_LOOK)
        looked = ctx.referee.check_timed(measured.outputs)
        left = measured if looked.verdict else replace(measured, outputs=())
        for mode in compiled.builds:
            take(ctx, found.compile_screened, found.compile_failed, mode, left)
        if noise.usable:
            adopt(ctx, compiled.candidates, left, looked)
    measurements.keep_session(found, ctx.run_dir)
    ctx.use(found)
