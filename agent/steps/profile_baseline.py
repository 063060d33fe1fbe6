"""Profile the baseline: the speed of the target, the noise of the machine, the gain of plain torch.compile."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
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
from tools.candidate import Candidate
from tools.judging import accept
from tools.judging.check import COPIES_IN_A_CHECK, Checked
from tools.judging.correctness import Finding
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
RECORDER, RECORDED = "compile_and_capture", "default, calls recorded"  # the same with recorded calls: how it is named
AT_THE_START = "at-the-start"  # attempts that are no attempts of a step yet
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
    begun = _prepare(ctx)
    ctx.display.subject = f"the original against itself{' and torch.compile' if begun.builds else ''}"
    recorded = {each: built.checked.build for each, built in begun.candidates.items() if each == RECORDED}
    noise, measured = ctx.referee.measure_noise({**begun.builds, **recorded})
    aa = measured.comparisons[ITSELF]
    counted = [build.graph_breaks for build in begun.builds.values() if build.graph_breaks is not None]
    found = SessionStart(
        aa=aa,
        own_tests=begun.own_tests,
        compile_failed=begun.failed,
        compile_endless=begun.endless,
        compile_breaks=max(counted, default=None),
    )
    looked = ctx.referee.check_timed(measured.outputs)  # of each by itself only where something is wrong
    left = measured if looked.verdict else replace(measured, outputs=())
    for mode in begun.builds:
        _take(ctx, found, mode, left)
    if noise.usable:
        _adopt(ctx, begun.candidates, left, looked)
    elif not ctx.budget.too_dear(aa.wall_s):  # once more: another program may have been busy
        ctx.display.subject = "the original against itself"
        _, again = ctx.referee.measure_noise()
        found.aa = again.only
    return found


@dataclass
class _Built:
    """A candidate that is measured beside the original."""

    candidate: Candidate
    checked: Checked


@dataclass
class _Begun:
    """What is known before anything is timed."""

    own_tests: OwnTests
    builds: dict[str, Build]  # by mode of torch.compile
    failed: dict[str, str]  # why others do not run
    endless: bool  # all of them, since compiling comes to no end
    candidates: dict[str, _Built]  # that are right: `PLAIN`, `RECORDED`


def _prepare(ctx: RunContext) -> _Begun:
    """Check and observe the original, run its tests and compile it, side by side: nothing is timed meanwhile."""
    ctx.display.subject = "the original"
    modes = [mode for mode in ctx.builds.compile_baselines if mode not in measurements.TUNED_MODES]
    with at_once(_side_by_side(ctx, len(modes)), ctx.end_running) as threads:
        original = threads.begin(ctx.builds.pristine_checked)
        compiler = threads.begin(partial(_prepare_compiler, ctx))
        seen = threads.begin(partial(_look, ctx))
        tests = threads.begin(ctx.referee.run_own_tests)
        seen.result()
        candidates = _candidates(ctx)
        checking = {
            name: threads.begin(partial(_checked, ctx, name, each, compiler)) for name, each in candidates.items()
        }
        rest = [mode for mode in modes if mode not in candidates]
        filling = {mode: threads.begin(partial(_filled, ctx, mode, compiler)) for mode in rest}
        original.result()
        ctx.progress.emit(Note(tests.result().note))
        builds, failed, endless, right = dict[str, Build](), dict[str, str](), 0, dict[str, _Built]()
        for name, future in checking.items():
            checked = future.result()
            if checked.finding.verdict is None:
                right[name] = _Built(candidates[name], checked)
            elif name == PLAIN and checked.finding.evidence.get("fault") in ENDLESS:
                _failed(ctx, failed, PLAIN, checked.finding.reason)
                endless += 1
            elif name == PLAIN:
                _keep(ctx, candidates[name], checked, checked.finding.as_verdict())
                filling[PLAIN] = threads.begin(partial(_filled, ctx, PLAIN, compiler))
        if PLAIN in right:
            builds[PLAIN] = ctx.builds.compile_baselines[PLAIN] = right[PLAIN].checked.build
        for mode, filled in filling.items():
            if isinstance(found := filled.result(), Build):
                builds[mode] = found
            else:
                _failed(ctx, failed, mode, str(found))
                endless += found.kind in ENDLESS
    ordered = {mode: builds[mode] for mode in modes if mode in builds}
    return _Begun(tests.result(), ordered, failed, bool(modes) and endless == len(modes), right)


def _look(ctx: RunContext) -> None:
    with contextlib.suppress(WorkerFault):  # told when it is needed
        ctx.proposals.view()


def _prepare_compiler(ctx: RunContext) -> None:
    if ctx.builds.compile_baselines:
        ctx.progress.emit(Note("preparing the compiler, once for all that will be compiled"))
        ctx.referee.prepare_compiler()


def _checked(ctx: RunContext, name: str, candidate: Candidate, compiler: Future[None]) -> Checked:
    compiler.result()
    ctx.display.say("compiling and checking", subject=f"plain torch.compile ({name})")
    attempt = Attempt(id=f"{AT_THE_START}-{name}", candidate=candidate, base=ctx.stack.top)
    build = ctx.builds.candidate(attempt)
    if isinstance(build, Verdict):
        return Checked(Finding(build.name, build.reason), ctx.referee.pristine)
    return ctx.builds.checked(attempt)


def _filled(ctx: RunContext, mode: str, compiler: Future[None]) -> Build | WorkerFault:
    """The build compiled in this mode, or why it does not run."""
    compiler.result()
    ctx.display.say("compiling", subject=f"plain torch.compile ({mode})")
    try:
        return ctx.builds.compile_baseline(mode)
    except WorkerFault as fault:
        return fault


def _candidates(ctx: RunContext) -> dict[str, Candidate]:
    """What does to the target's source what one line of torch.compile does, where that can be said there; on a GPU
    with calls recorded, too.

    Measured beside the original, the plain one is a baseline and a candidate of its step at once.
    """
    if PLAIN not in ctx.builds.compile_baselines or PLAIN_STEP not in ctx.config.steps:
        return {}
    assumed: dict[str, Any] = {"looking": True}
    if ctx.platform.device == "cuda":
        assumed |= {"recording_pays": True, "compile_breaks": 0}
    found = ctx.proposals.propose(PLAIN_STEP, **assumed)[0]
    if len({each.key.place for each in found}) != 1:
        return {}
    plain = [each for each in found if (each.key.rewriter, each.key.variant) == (PLAIN_STEP, PLAIN_VARIANT)]
    recorded = [each for each in found if each.key.rewriter == RECORDER]
    if not plain:
        return {}
    return {PLAIN: plain[0], RECORDED: recorded[0]} if recorded else {PLAIN: plain[0]}


def _adopt(ctx: RunContext, candidates: dict[str, _Built], measured: Measured, looked: Finding) -> None:
    """The first attempt of its step with its verdict, by what was measured: the better of those that are kept. What
    this leaves open, or what goes beyond belief, is timed once more by the step.
    """
    decided = dict[str, Verdict]()
    for name, built in candidates.items():
        compared = measured.comparisons[name]
        if not compared.failed and accept.look(compared.log_ratios, ctx.referee.delta) == "continue":
            continue
        outputs, pristine = measured.outputs_of(name), ctx.builds.pristine_checked().build
        decided[name] = ctx.referee.decide(built.checked, compared, outputs, pristine)
        if looked.verdict is None:
            decided[name].evidence["timed_outputs"] = looked.evidence
    kept = {name: each.speedup.median for name, each in decided.items() if each.name == "kept" and each.speedup}
    best = max(kept, key=lambda name: kept[name], default=PLAIN)
    if best == RECORDED and PLAIN in kept and kept[best] <= kept[PLAIN] * (1 + ctx.referee.delta):
        best = PLAIN  # which is less
    if best in decided and kept.get(best, 0.0) <= QUARANTINE:
        _keep(ctx, candidates[best].candidate, candidates[best].checked, decided[best])


def _keep(ctx: RunContext, candidate: Candidate, checked: Checked, verdict: Verdict) -> None:
    """As the first attempt of its step, which finds it."""
    attempt = Attempt(id=f"{PLAIN_STEP}-1", candidate=candidate, base=ctx.stack.top)
    ctx.attempts.save(attempt)
    ctx.builds.know(attempt, checked)
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
    copies = COPIES_IN_A_CHECK * 3 + modes
    if ctx.config.seed is not None or not ctx.workload.fits(copies):
        return 1
    return 4 + modes if ctx.platform.device == "cuda" else 2


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
