"""Profile the baseline: the speed of the target, the noise of the machine, the gain of plain torch.compile."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from agent import schedule
from agent.context import RunContext
from agent.proposers import Platform
from agent.records import measurements
from agent.records.atomic_file import write_atomically
from agent.records.attempts import Attempt
from agent.records.measurements import SessionStart
from agent.reporting.progress import Judging, Note
from agent.state import RunState, Update, ended
from agent.steps.summing_up import finish, start
from tools.judging import accept
from tools.judging.check import Checked
from tools.judging.comparison import Comparison
from tools.judging.measure import ComparisonRequest, Measured
from tools.judging.referee import ITSELF, QUARANTINE, Referee
from tools.judging.verdict import Verdict
from tools.judging.worker import Build, WorkerFault
from tools.plain_text import one_line
from tools.profiler.causes import launching_decides

STEP = "profile_baseline"
PUT_AWAY_S = 20.0  # to store the cache of a stopped compilation
ENDLESS = ("compiles_again", "hangs")  # faults of what comes to no end, or begins again for each input
PLAIN = "default"  # the mode of torch.compile that a candidate may be the same as
PLAIN_STEP, PLAIN_VARIANT = "compile_model", "dynamic"  # of which step, and which of its variants
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
        known = measure(ctx)
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
    if not call_us:
        reason = "its calls could not be timed"
    if profile.kernels:
        reason += f"; most of it in {profile.primary_bottleneck_component}, {profile.primary_bottleneck_type}"
    update = finish(ctx, ended(STEP, "done", reason))
    first = schedule.first(known, noise.delta, waits=launching_decides(profile))
    return {**update, "goto": first if first in ctx.config.steps else ""}


def measure(ctx: RunContext) -> SessionStart:
    """The A/A comparison, with the plain modes of torch.compile in the same restarts, and the target's own tests."""
    ctx.display.subject = "the original"
    ctx.builds.pristine_checked()  # before anything is timed
    own_tests = ctx.referee.run_own_tests()
    ctx.progress.emit(Note(own_tests.note))
    failed: dict[str, str] = {}
    plain = _plain_candidate(ctx)
    checked = None if plain is None else ctx.builds.checked(plain)
    untuned = [mode for mode in ctx.builds.compile_baselines if mode not in measurements.TUNED_MODES]
    if checked is not None and checked.finding.verdict is None:
        ctx.builds.compile_baselines[PLAIN] = checked.build
    if checked is not None and checked.finding.evidence.get("fault") in ENDLESS:
        builds, endless = dict[str, Build](), True
        for mode in untuned:
            _failed(ctx, failed, mode, checked.finding.reason)
    else:
        builds, endless = _fill_all(ctx, untuned, failed)
    ctx.display.subject = f"the original against itself{' and torch.compile' if builds else ''}"
    noise, measured = ctx.referee.measure_noise(builds)
    aa = measured.comparisons[ITSELF]
    counted = [build.graph_breaks for build in builds.values() if build.graph_breaks is not None]
    found = SessionStart(
        aa=aa,
        own_tests=own_tests,
        compile_failed=failed,
        compile_endless=endless,
        compile_breaks=max(counted, default=None),
    )
    for mode in builds:
        _take(ctx, found, mode, measured)
    if plain and checked and checked.finding.verdict is None and PLAIN in found.compile and noise.usable:
        _adopt(ctx, plain, checked, found.compile[PLAIN], measured)
    if not noise.usable:  # once more: another program may have been busy
        ctx.display.subject = "the original against itself"
        _, again = ctx.referee.measure_noise()
        found.aa = again.only
    return found


def _plain_candidate(ctx: RunContext) -> Attempt | None:
    """What does to the target's source what one line of plain torch.compile does, where that can be said there.

    Measured beside the original, it is a baseline and the first candidate of its step at once.
    """
    if PLAIN not in ctx.builds.compile_baselines or PLAIN_STEP not in ctx.config.steps:
        return None
    found = [each for each in ctx.proposals.propose(PLAIN_STEP, looking=True)[0] if each.key.rewriter == PLAIN_STEP]
    same = [each for each in found if each.key.variant == PLAIN_VARIANT]
    if len(same) != 1 or any(each.key.place != same[0].key.place for each in found):
        return None
    attempt = Attempt(id=f"{PLAIN_STEP}-1", candidate=same[0], base=ctx.stack.top)
    ctx.attempts.save(attempt)
    return None if isinstance(ctx.builds.candidate(attempt), Verdict) else attempt  # the step says why


def _adopt(ctx: RunContext, attempt: Attempt, checked: Checked, compared: Comparison, measured: Measured) -> None:
    """Its verdict from what was measured; one that goes beyond belief is left to be timed once more."""
    verdict = ctx.referee.decide(checked, compared, measured.outputs_of(PLAIN), ctx.builds.pristine_checked().build)
    if verdict.speedup is None or verdict.speedup.median <= QUARANTINE:
        ctx.attempts.save_verdict(attempt.id, verdict)


def measure_tuned(ctx: RunContext) -> None:
    """What plain torch.compile gives with tuning, beside what it gives without, where there is time left for it."""
    found = measurements.session_start(ctx.run_dir)
    assert found is not None, "the baseline comes first"
    known = {*found.compile, *found.compile_screened, *found.compile_failed}
    wanted = [mode for mode in ctx.builds.compile_baselines if mode not in known]
    best = found.best_compile()
    if not wanted or not best:
        return
    if not ctx.budget.allows(ctx.referee.setting.check_timeout_s):
        found.compile_failed.update(dict.fromkeys(wanted, "there was no time for tuning"))
    elif builds := _fill_all(ctx, wanted, found.compile_failed)[0]:
        builds = {best: ctx.builds.compile_baseline(best), **builds}
        measured = _compare(ctx, "baselines, tuned", builds, accept.FIRST_LOOK)
        found.compile_screened.update({mode: each for mode, each in measured.comparisons.items() if not each.failed})
        found.compile_screened.pop(best, None)
        found.compile_failed.update({mode: c.failed for mode, c in measured.comparisons.items() if c.failed})
    measurements.keep_session(found, ctx.run_dir)


def confirm_best(ctx: RunContext) -> None:
    """Measure the best mode in full, if a few restarts showed it to be the best."""
    found = measurements.session_start(ctx.run_dir)
    if found is None or (best := found.best_compile()) not in found.compile_screened:
        return
    builds = {best: ctx.builds.compile_baseline(best)}
    take_beside(ctx, found, best, _compare(ctx, "baselines", builds, min(accept.REPORT_LOOKS)))


def take_beside(ctx: RunContext, found: SessionStart, mode: str, measured: Measured) -> bool:
    """Take a mode's full measurement in the place of that by few restarts; False where the mode fails there."""
    _take(ctx, found, mode, measured)
    found.compile_screened.pop(mode)
    measurements.keep_session(found, ctx.run_dir)
    return mode in found.compile


def _take(ctx: RunContext, found: SessionStart, mode: str, measured: Measured) -> None:
    comparison = measured.comparisons[mode]
    wrong = ctx.referee.check_timed(measured.outputs_of(mode)).reason
    if failed := comparison.failed or wrong:
        _failed(ctx, found.compile_failed, mode, failed)
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


def _fill_all(ctx: RunContext, wanted: Sequence[str], failed: dict[str, str]) -> tuple[dict[str, Build], bool]:
    """Builds compiled in these modes, side by side where memory allows, and whether none comes to an end; nothing is
    timed meanwhile. Tells in `failed` why others were not.
    """
    builds: dict[str, Build] = {}
    if not wanted:
        return builds, False
    ctx.display.subject = f"plain torch.compile ({', '.join(wanted)})"
    ctx.display.say("compiling")
    pool = ThreadPoolExecutor(_side_by_side(ctx, len(wanted)))
    try:
        futures = {mode: pool.submit(ctx.builds.compile_baseline, mode) for mode in wanted}
        _wait_for(ctx, futures)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    endless = 0
    for mode in wanted:
        try:
            builds[mode] = futures[mode].result()
        except WorkerFault as fault:
            _failed(ctx, failed, mode, str(fault))
            endless += fault.kind in ENDLESS
    return builds, endless == len(wanted)


def _wait_for(ctx: RunContext, filling: dict[str, Future[Build]]) -> None:
    """On Ctrl-C do not wait for minutes of tuning, only until finished compilations are stored."""
    left = {*filling.values()}
    try:
        while left:
            over, left = wait(left, return_when=FIRST_COMPLETED)
            phase = f"compiling: {', '.join(mode for mode in filling if filling[mode] in over)} done"
            ctx.progress.emit(Judging(ctx.display.subject, phase, len(filling) - len(left), len(filling), "modes"))
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


def _failed(ctx: RunContext, failed: dict[str, str], mode: str, why: str) -> None:
    failed[mode] = why
    ctx.progress.emit(Note(f"plain torch.compile ({mode}) cannot be compared with: {one_line(why, 300)}"))


def compile_builds(referee: Referee, platform: Platform) -> dict[str, Build]:
    """The pristine tree under each plain mode, with nothing compiled yet."""
    pristine = referee.pristine
    modes = MODES["rocm" if platform.rocm else platform.device]
    return {
        mode: Build(f"{pristine.key}+compile:{mode}", pristine.tree, compile_options=options)
        for mode, options in modes.items()
    }
