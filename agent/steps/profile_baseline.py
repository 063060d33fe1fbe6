"""Profile the baseline: the speed of the target, the noise of the machine, the gain of plain torch.compile."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from statistics import median
from typing import Any

from agent import schedule
from agent.context import RunContext
from agent.proposers import Platform
from agent.records import measurements
from agent.records.atomic_file import write_atomically
from agent.records.measurements import GraphBreaks, Screened, SessionStart
from agent.reporting.progress import Judging, Note
from agent.state import RunState, Update, ended
from agent.steps.summing_up import finish, start
from tools.judging import accept
from tools.judging.comparison import Comparison
from tools.judging.measure import ComparisonRequest, Measured
from tools.judging.own_tests import OwnTests
from tools.judging.referee import Referee
from tools.judging.worker import Build, WorkerFault
from tools.plain_text import one_line

STEP = "profile_baseline"
PUT_AWAY_S = 20.0  # to store the cache of a stopped compilation
# a mode is measured in full unless a screen shows it to be slower than the best by more than this: beside each other in
# the same restarts two modes differ by 1 to 2 % more or less from one restart to the next
NEAR_THE_BEST = 0.04
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


def run(state: RunState, ctx: RunContext) -> Update:
    start(ctx, STEP)  # this step is never left out: nothing can be judged without it
    known = measurements.session_start(ctx.run_dir)
    if known is None:
        known = _measure(ctx)
        measurements.keep_session(known, ctx.run_dir)
    ctx.use(known)
    ctx.display.subject = "the original"
    profile = ctx.builds.profile("baseline", ctx.builds.pristine_checked().build)
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
    if profile.kernels:
        reason += f"; most of it in {profile.primary_bottleneck_component}, {profile.primary_bottleneck_type}"
    update = finish(ctx, ended(STEP, "done", reason))
    first = schedule.first(known, noise.delta, on_gpu=ctx.platform.device == "cuda")
    return {**update, "goto": first if first in ctx.config.steps else ""}


def _measure(ctx: RunContext) -> SessionStart:
    ctx.display.subject = "the original"
    ctx.builds.pristine_checked()  # before anything is timed
    parts = ctx.run_dir / "session"  # so that what was measured before an interruption is not measured again
    parts.mkdir(exist_ok=True)
    aa = measurements.once(parts / "aa.json", Comparison, lambda: _against_itself(ctx))
    ctx.referee.use_noise(aa)
    ctx.display.subject = "the original"
    own_tests = measurements.once(parts / "own-tests.json", OwnTests, ctx.referee.run_own_tests)
    found = SessionStart(aa=aa, own_tests=own_tests)
    ctx.progress.emit(Note(found.own_tests.note))
    measure_modes(ctx, found)
    return found


def measure_modes(ctx: RunContext, found: SessionStart) -> None:
    """Measure plain torch.compile in each mode: a screen of all, then in full those near the best.

    Where the screen leaves one mode that clearly pays, its full measurement waits for that of the whole stack.
    """
    builds = _fill_all(ctx, found)
    left = _screen(ctx, found, builds)
    near = _near_the_best(left)
    screened = found.compile_screened.get(near[0]) if len(near) == 1 else None
    if screened and accept.look(screened.log_ratios, ctx.referee.delta) == "kept":
        return
    _confirm_near(ctx, found, left)


def confirm_best(ctx: RunContext) -> None:
    """Measure the best mode in full, if that was left for the end."""
    found = measurements.session_start(ctx.run_dir)
    if found is not None and found.compile_screened and not found.compile:
        left = {mode: median(each.log_ratios) for mode, each in found.compile_screened.items()}
        _confirm_near(ctx, found, left)
        measurements.keep_session(found, ctx.run_dir)


def take_beside(ctx: RunContext, found: SessionStart, mode: str, measured: Measured) -> bool:
    """Take a screened mode's full measurement from that of the whole stack; False where the mode fails there."""
    _take(ctx, found, mode, measured)
    found.compile_screened.pop(mode)
    measurements.keep_session(found, ctx.run_dir)
    return mode in found.compile


def _confirm_near(ctx: RunContext, found: SessionStart, left: dict[str, float]) -> None:
    """Measure in full the modes near the best of `left` (gain by mode), then the next best while all are wrong."""
    while left and not found.compile:
        near = _near_the_best(left)
        builds = {mode: ctx.builds.compile_baseline(mode) for mode in near}
        measured = _compare(ctx, "baselines", builds, min(accept.REPORT_LOOKS))
        for mode in measured.comparisons:
            _take(ctx, found, mode, measured)
        left = {mode: gain for mode, gain in left.items() if mode not in near}
    found.compile_screened = {mode: each for mode, each in found.compile_screened.items() if mode in left}


def _near_the_best(gains: dict[str, float]) -> list[str]:
    return [mode for mode in gains if gains[mode] >= max(gains.values()) - NEAR_THE_BEST]


def _screen(ctx: RunContext, found: SessionStart, builds: dict[str, Build]) -> dict[str, float]:
    """The logarithm of each mode's speedup in a few restarts, without modes that failed."""
    if len(builds) < 2:
        return dict.fromkeys(builds, 0.0)

    def screen() -> Screened:
        return Screened(modes=dict(_compare(ctx, "baselines screened", builds, accept.FIRST_LOOK).comparisons))

    screened = measurements.once(ctx.run_dir / "session" / "screened.json", Screened, screen)
    for mode, comparison in screened.modes.items():
        if comparison.failed:
            _failed(ctx, found, mode, comparison.failed)
        else:
            found.compile_screened[mode] = comparison
    return {mode: median(comparison.log_ratios) for mode, comparison in found.compile_screened.items()}


def _take(ctx: RunContext, found: SessionStart, mode: str, measured: Measured) -> None:
    comparison = measured.comparisons[mode]
    wrong = ctx.referee.check_timed(measured.outputs_of(mode)).reason
    if failed := comparison.failed or wrong:
        _failed(ctx, found, mode, failed)
    else:
        found.compile[mode] = comparison


def _compare(ctx: RunContext, purpose: str, builds: dict[str, Build], restarts: int) -> Measured:
    ctx.display.subject = f"plain torch.compile ({', '.join(builds)})"
    request = ComparisonRequest(
        purpose,
        ctx.builds.pristine_checked().build,
        builds,
        lambda found: len(found.log_ratios) >= restarts,
        progress=lambda n: ctx.display.say("measuring", n, restarts),
        doing=ctx.display.say,
        fewest=restarts,
    )
    return ctx.referee.clock.compare(request)


def _against_itself(ctx: RunContext) -> Comparison:
    ctx.display.subject = "the original against itself"
    noise, aa = ctx.referee.measure_noise()
    if not noise.usable:  # once more: another program may have been busy
        noise, aa = ctx.referee.measure_noise()
    return aa


def _fill_all(ctx: RunContext, found: SessionStart) -> dict[str, Build]:
    """Compile in all modes, side by side where memory allows; nothing is timed meanwhile.

    On ROCm, tuning has hung, so that there it comes last and by itself.
    """
    builds: dict[str, Build] = {}
    pending = ctx.builds.compile_baselines
    ctx.display.subject = f"plain torch.compile ({', '.join(pending)})"
    ctx.display.say("compiling")
    tuned = [mode for mode in pending if mode in measurements.TUNED_MODES]
    others = [mode for mode in pending if mode not in tuned]
    waves = [others, *([mode] for mode in tuned)] if ctx.platform.rocm else [tuned + others]  # the longest first
    futures: dict[str, Future[Build]] = {}
    pool = ThreadPoolExecutor(_side_by_side(ctx, len(pending)))
    try:
        for wave in waves:
            futures |= {mode: pool.submit(ctx.builds.filled, pending[mode]) for mode in wave}
            _wait_for(ctx, wave, futures)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    endless = 0
    for mode in pending:
        try:
            builds[mode] = futures[mode].result()
        except WorkerFault as fault:
            _failed(ctx, found, mode, str(fault))
            endless += fault.kind in ("compiles_again", "hangs")
    found.compile_endless = endless == len(pending) > 0
    counted = [build.graph_breaks for build in builds.values() if build.graph_breaks is not None]
    found.compile_breaks = measurements.once(
        ctx.run_dir / "session" / "graph-breaks.json",
        GraphBreaks,
        lambda: GraphBreaks(count=max(counted, default=None)),
    ).count
    ctx.builds.compile_baselines.update(builds)
    return builds


def _wait_for(ctx: RunContext, wave: Collection[str], filling: dict[str, Future[Build]]) -> None:
    """On Ctrl-C do not wait for minutes of tuning, only until finished compilations are stored."""
    left = {filling[mode] for mode in wave}
    try:
        while left:
            over, left = wait(left, return_when=FIRST_COMPLETED)
            phase = f"compiling: {', '.join(mode for mode in wave if filling[mode] in over)} done"
            done, modes = len(filling) - len(left), len(ctx.builds.compile_baselines)
            ctx.progress.emit(Judging(ctx.display.subject, phase, done, modes, "modes"))
    except KeyboardInterrupt:
        for waiting in filling.values():
            waiting.cancel()
        ctx.end_running()
        wait(filling.values(), PUT_AWAY_S)
        raise


def _side_by_side(ctx: RunContext, builds: int) -> int:
    """How many compile at once: all beside a GPU, where max-autotune takes as long as the others together."""
    wanted = builds if ctx.platform.device == "cuda" else 2
    return next((n for n in range(wanted, 1, -1) if ctx.workload.fits(n)), 1)


def _failed(ctx: RunContext, found: SessionStart, mode: str, why: str) -> None:
    found.compile_failed[mode] = why
    ctx.progress.emit(Note(f"plain torch.compile ({mode}) cannot be compared with: {one_line(why, 300)}"))


def compile_builds(referee: Referee, platform: Platform) -> dict[str, Build]:
    """The pristine tree under each plain mode, with nothing compiled yet."""
    pristine = referee.pristine
    modes = MODES["rocm" if platform.rocm else platform.device]
    return {
        mode: Build(f"{pristine.key}+compile:{mode}", pristine.tree, compile_options=options)
        for mode, options in modes.items()
    }
