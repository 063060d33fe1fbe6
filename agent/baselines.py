"""What one line of torch.compile gives: the baselines that a stack is compared with, and their measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.context import RunContext
from agent.proposers import Platform
from agent.records import measurements
from agent.records.measurements import PLAIN, TUNED_MODES, SessionStart
from agent.reporting.progress import Note
from tools.judging import accept
from tools.judging.comparison import Comparison
from tools.judging.measure import ComparisonRequest, Measured
from tools.judging.referee import Referee
from tools.judging.worker import Build, WorkerFault
from tools.plain_text import one_line

# the plain modes a user would try, by device; on ROCm max-autotune has hung, so it is no plain line there
MODES: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {"default": {}, "max-autotune": {"mode": "max-autotune"}},
    "cuda": {"default": {}, "reduce-overhead": {"mode": "reduce-overhead"}, "max-autotune": {"mode": "max-autotune"}},
    # recording what was tuned has crashed there (pytorch issue 193735)
    "rocm": {
        "default": {},
        "reduce-overhead": {"mode": "reduce-overhead"},
        "max-autotune-no-cudagraphs": {"mode": "max-autotune-no-cudagraphs"},
    },
}


def compile_builds(referee: Referee, platform: Platform) -> dict[str, Build]:
    """The pristine tree under each plain mode, with nothing compiled yet."""
    pristine = referee.pristine
    modes = MODES["rocm" if platform.rocm else platform.device]
    return {
        mode: Build(f"{pristine.key}+compile:{mode}", pristine.tree, compile_options=options)
        for mode, options in modes.items()
    }


def best_mode(ctx: RunContext, found: SessionStart) -> str:
    """The best that was measured, or the plain one where it was not tried; empty where there is none."""
    is_open = PLAIN in ctx.builds.compile_baselines and PLAIN not in found.modes
    return found.best_compile() or (PLAIN if is_open else "")


def measure_tuned(ctx: RunContext) -> None:
    """What plain torch.compile gives with tuning, beside what it gives without, where there is time left for it."""
    found = measurements.session_start(ctx.run_dir)
    assert found is not None, "the baseline comes first"
    wanted = [mode for mode in ctx.builds.compile_baselines if mode in TUNED_MODES and mode not in found.modes]
    best = best_mode(ctx, found)
    if not wanted or not best:
        return
    timing_s = accept.FIRST_LOOK * ctx.budget.final_restart_s
    if not ctx.budget.allows(ctx.referee.setting.check_timeout_s + timing_s):
        found.compile_failed.update(dict.fromkeys(wanted, "there was no time for tuning"))
    elif builds := compiled(ctx, [best, *wanted], found.compile_failed):
        measured = compare(ctx, "baselines, tuned", builds, accept.FIRST_LOOK)
        better = {mode: each for mode, each in measured.comparisons.items() if not each.failed}
        found.compile_screened |= {mode: each for mode, each in better.items() if mode not in found.compile}
        found.compile_failed.update({mode: c.failed for mode, c in measured.comparisons.items() if c.failed})
    measurements.keep_session(found, ctx.run_dir)


def compiled(ctx: RunContext, wanted: Sequence[str], failed: dict[str, str]) -> dict[str, Build]:
    """By mode: those that run."""
    builds: dict[str, Build] = {}
    for mode in wanted:
        try:
            builds[mode] = ctx.builds.compile_baseline(mode)
        except WorkerFault as fault:
            leave_out(ctx, failed, mode, str(fault))
    return builds


def confirm_best(ctx: RunContext) -> None:
    """Measure the best mode in full, if a few restarts showed it to be that, or none was tried and there is time."""
    found = measurements.session_start(ctx.run_dir)
    if found is None or not (best := best_mode(ctx, found)) or best in found.compile:
        return
    if best not in found.modes and ctx.budget.used_up(attempts=1):
        return
    if builds := compiled(ctx, [best], found.compile_failed):
        take_beside(ctx, found, best, compare(ctx, "baselines", builds, min(accept.REPORT_LOOKS)))
    else:
        measurements.keep_session(found, ctx.run_dir)


def take_beside(ctx: RunContext, found: SessionStart, mode: str, measured: Measured) -> bool:
    """Take a mode's full measurement in the place of that by few restarts; False where the mode fails there."""
    take(ctx, found.compile, found.compile_failed, mode, measured)
    found.compile_screened.pop(mode, None)
    measurements.keep_session(found, ctx.run_dir)
    return mode in found.compile


def take(ctx: RunContext, right: dict[str, Comparison], failed: dict[str, str], mode: str, measured: Measured) -> None:
    """Take in what was measured of a mode, or why it cannot be compared with."""
    comparison = measured.comparisons[mode]
    wrong = ctx.referee.check_timed(measured.outputs_of(mode)).reason
    if why := comparison.failed or wrong:
        leave_out(ctx, failed, mode, why)
    else:
        right[mode] = comparison


def compare(ctx: RunContext, purpose: str, builds: dict[str, Build], restarts: int) -> Measured:
    ctx.display.subject = f"plain torch.compile ({', '.join(builds)})"
    request = ComparisonRequest(
        purpose,
        ctx.builds.pristine_checked().build,
        builds,
        lambda found: len(found.log_ratios) >= restarts,
        progress=lambda n: ctx.display.say("measuring", n, restarts),
        doing=ctx.display.say,
        fewest=restarts,
        counts=ctx.referee.would_keep,
        low_serves=True,
    )
    return ctx.referee.clock.compare(request)


def leave_out(ctx: RunContext, failed: dict[str, str], mode: str, why: str) -> None:
    failed[mode] = why.strip().splitlines()[-1] if why.startswith("Traceback") else why
    ctx.progress.emit(Note(f"plain torch.compile ({mode}) cannot be compared with: {one_line(failed[mode], 300)}"))
