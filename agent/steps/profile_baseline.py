"""Profile the baseline: the speed of the target, the noise of the machine, the gain of plain torch.compile."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent import schedule
from agent.at_once import at_once
from agent.context import RunContext
from agent.proposers import Platform
from agent.records import measurements
from agent.records.atomic_file import write_atomically
from agent.records.attempts import Attempt
from agent.records.measurements import SessionStart
from agent.reporting.progress import Note
from agent.state import RunState, Update, ended
from agent.steps.summing_up import finish, start
from tools.judging import accept
from tools.judging.check import COPIES_IN_A_CHECK, Checked
from tools.judging.comparison import Comparison
from tools.judging.measure import ComparisonRequest, Measured
from tools.judging.own_tests import OwnTests
from tools.judging.referee import ITSELF, QUARANTINE, Referee
from tools.judging.verdict import Verdict
from tools.judging.worker import Build, WorkerFault
from tools.plain_text import one_line
from tools.profiler.causes import launching_decides

STEP = "profile_baseline"
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
    plain, begun = _prepare(ctx)
    builds = begun.builds
    ctx.display.subject = f"the original against itself{' and torch.compile' if builds else ''}"
    noise, measured = ctx.referee.measure_noise(builds)
    aa = measured.comparisons[ITSELF]
    counted = [build.graph_breaks for build in builds.values() if build.graph_breaks is not None]
    found = SessionStart(
        aa=aa,
        own_tests=begun.own_tests,
        compile_failed=begun.failed,
        compile_endless=begun.endless,
        compile_breaks=max(counted, default=None),
    )
    for mode in builds:
        _take(ctx, found, mode, measured)
    if plain and begun.checked and PLAIN in found.compile and noise.usable:
        _adopt(ctx, plain, begun.checked, found.compile[PLAIN], measured)
    if not noise.usable and not ctx.budget.too_dear(aa.wall_s):  # once more: another program may have been busy
        ctx.display.subject = "the original against itself"
        _, again = ctx.referee.measure_noise()
        found.aa = again.only
    return found


@dataclass
class _Begun:
    """What is known before anything is timed."""

    own_tests: OwnTests
    builds: dict[str, Build]  # by mode of torch.compile
    failed: dict[str, str]  # why others do not run
    endless: bool  # all of them, since compiling comes to no end
    checked: Checked | None  # the plain candidate, where it is right


def _prepare(ctx: RunContext) -> tuple[Attempt | None, _Begun]:
    """Check and observe the original, run its tests and compile it, side by side: nothing is timed meanwhile."""
    ctx.display.subject = "the original"
    modes = [mode for mode in ctx.builds.compile_baselines if mode not in measurements.TUNED_MODES]
    with at_once(_side_by_side(ctx, len(modes)), ctx.end_running) as threads:
        original = threads.begin(ctx.builds.pristine_checked)
        compiler = threads.begin(partial(_prepare_compiler, ctx))
        seen = threads.begin(partial(_look, ctx))
        tests = threads.begin(ctx.referee.run_own_tests)
        seen.result()
        plain = _plain_candidate(ctx)
        checking = threads.begin(partial(_checked, ctx, plain, compiler)) if plain else None
        filling = {
            mode: threads.begin(partial(_filled, ctx, mode, compiler)) for mode in modes if not plain or mode != PLAIN
        }
        original.result()
        ctx.progress.emit(Note(tests.result().note))
        checked = checking.result() if checking else None
        builds, failed, endless = dict[str, Build](), dict[str, str](), 0
        if checked is not None and checked.finding.verdict is None:
            builds[PLAIN] = ctx.builds.compile_baselines[PLAIN] = checked.build
        elif checked is not None and checked.finding.evidence.get("fault") in ENDLESS:
            _failed(ctx, failed, PLAIN, checked.finding.reason)
            endless += 1
        elif checked is not None:
            filling[PLAIN] = threads.begin(partial(_filled, ctx, PLAIN, compiler))
        for mode, future in filling.items():
            if isinstance(found := future.result(), Build):
                builds[mode] = found
            else:
                _failed(ctx, failed, mode, str(found))
                endless += found.kind in ENDLESS
    right = checked if checked is not None and checked.finding.verdict is None else None
    ordered = {mode: builds[mode] for mode in modes if mode in builds}
    return plain, _Begun(tests.result(), ordered, failed, bool(modes) and endless == len(modes), right)


def _look(ctx: RunContext) -> None:
    with contextlib.suppress(WorkerFault):  # told when it is needed
        ctx.proposals.view()


def _prepare_compiler(ctx: RunContext) -> None:
    if ctx.builds.compile_baselines:
        ctx.progress.emit(Note("preparing the compiler, once for all that will be compiled"))
        ctx.referee.prepare_compiler()


def _checked(ctx: RunContext, plain: Attempt, compiler: Future[None]) -> Checked:
    compiler.result()
    ctx.display.say("compiling and checking", subject=f"plain torch.compile ({PLAIN})")
    return ctx.builds.checked(plain)


def _filled(ctx: RunContext, mode: str, compiler: Future[None]) -> Build | WorkerFault:
    """The build compiled in this mode, or why it does not run."""
    compiler.result()
    ctx.display.say("compiling", subject=f"plain torch.compile ({mode})")
    try:
        return ctx.builds.compile_baseline(mode)
    except WorkerFault as fault:
        return fault


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
    """Its verdict from what was measured; one that this leaves open or that goes beyond belief is timed once more."""
    if accept.look(compared.log_ratios, ctx.referee.delta) == "continue":
        return
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
    elif builds := _tuned(ctx, wanted, found.compile_failed):
        builds = {best: ctx.builds.compile_baseline(best), **builds}
        measured = _compare(ctx, "baselines, tuned", builds, accept.FIRST_LOOK)
        found.compile_screened.update({mode: each for mode, each in measured.comparisons.items() if not each.failed})
        found.compile_screened.pop(best, None)
        found.compile_failed.update({mode: c.failed for mode, c in measured.comparisons.items() if c.failed})
    measurements.keep_session(found, ctx.run_dir)


def _tuned(ctx: RunContext, wanted: Sequence[str], failed: dict[str, str]) -> dict[str, Build]:
    builds: dict[str, Build] = {}
    for mode in wanted:
        ctx.display.say("compiling", subject=f"plain torch.compile ({mode})")
        try:
            builds[mode] = ctx.builds.compile_baseline(mode)
        except WorkerFault as fault:
            _failed(ctx, failed, mode, str(fault))
    return builds


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


def _side_by_side(ctx: RunContext, modes: int) -> int:
    """How many things are done at once. One where inputs are those of a seed: they are drawn in this order."""
    copies = COPIES_IN_A_CHECK * 2 + modes
    if ctx.config.seed is not None or not ctx.workload.fits(copies):
        return 1
    return 3 + modes if ctx.platform.device == "cuda" else 2


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
