"""What is known before anything is timed: made side by side, since nothing is timed meanwhile.

One line of torch.compile is compiled as a candidate where it can be said in the target's source. Measured beside the
original it is a baseline and the first attempt of its step at once. On a CPU that is done in its turn.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import BoundedSemaphore
from typing import Any

from agent.at_once import AtOnce, at_once
from agent.baselines import leave_out
from agent.context import RunContext
from agent.records import measurements
from agent.records.attempts import Attempt
from agent.records.measurements import PLAIN
from agent.reporting.progress import Note, VerdictReached
from tools.candidate import Candidate
from tools.judging import accept
from tools.judging.check import COPIES_IN_A_CHECK, Checked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.measure import Measured
from tools.judging.own_tests import OwnTests
from tools.judging.verdict import Verdict
from tools.judging.worker import Build, WorkerFault

ENDLESS = ("compiles_again", "hangs")  # faults of what comes to no end, or begins again for each input
PLAIN_STEP, PLAIN_VARIANT = "compile_model", "dynamic"  # of which step, and which of its variants
RECORDER, RECORDED = "compile_and_capture", "default, calls recorded"  # the same with recorded calls: how it is named
RECORDED_STEP, EAGER = "capture_graph", "calls recorded"  # as they are: where no mode runs, or none gains
CHECKS = 4  # of the original and of three candidates
AT_THE_START = "at-the-start"  # attempts that are no attempts of a step yet


@dataclass
class Built:
    """A candidate that is measured beside the original."""

    attempt: Attempt  # under another id than it gets in its step
    checked: Checked
    took_s: float = 0.0


@dataclass
class Compiled:
    """What plain torch.compile makes of the original, before anything of it is timed."""

    builds: dict[str, Build] = field(default_factory=dict)  # by mode
    failed: dict[str, str] = field(default_factory=dict)  # why others do not run
    endless: bool = False  # all of them, since compiling comes to no end
    candidates: dict[str, Built] = field(default_factory=dict)  # that are right: `PLAIN`, `RECORDED`, `EAGER`

    @property
    def told(self) -> dict[str, Any]:
        """What a `SessionStart` has of it."""
        counted = [build.graph_breaks for build in self.builds.values() if build.graph_breaks is not None]
        return {
            "compile_failed": self.failed,
            "compile_endless": self.endless,
            "compile_breaks": max(counted, default=None),
            "compiling_s": self.candidates[PLAIN].took_s if PLAIN in self.candidates else 0.0,
        }

    @property
    def beside(self) -> dict[str, Build]:
        """All that is measured beside the original: calls recorded as they are only where no mode runs."""
        wanted = {name: each for name, each in self.candidates.items() if name != EAGER or not self.builds}
        return {**self.builds, **{name: each.checked.build for name, each in wanted.items()}}


def prepare(ctx: RunContext) -> tuple[OwnTests, Compiled]:
    """Check and observe the original, run its tests, and on a GPU compile it, side by side."""
    ctx.display.subject = "the original"
    modes = plain_modes(ctx) if ctx.platform.device == "cuda" else []
    number, checks = _side_by_side(ctx, len(modes))
    checking = BoundedSemaphore(checks)
    with at_once(number, ctx.end_running) as threads:
        original = threads.begin(partial(_checked_pristine, ctx, checking))
        compiler = threads.begin(partial(_prepare_compiler, ctx))
        seen = threads.begin(partial(_look, ctx))
        tests = threads.begin(ctx.referee.run_own_tests)
        compiled = _begun(ctx, threads, modes, compiler, seen, checking)
        original.result()
        ctx.progress.emit(Note(tests.result().note))
        return tests.result(), compiled()


def compile_plain(ctx: RunContext) -> Compiled:
    """Compile the original, as one line of torch.compile does."""
    modes = plain_modes(ctx)
    number, checks = _side_by_side(ctx, len(modes))
    with at_once(number, ctx.end_running) as threads:
        nothing, seen = threads.begin(lambda: None), threads.begin(partial(_look, ctx))
        return _begun(ctx, threads, modes, nothing, seen, BoundedSemaphore(checks))()


def plain_modes(ctx: RunContext) -> list[str]:
    """Of torch.compile: those that tune nothing."""
    return [mode for mode in ctx.builds.compile_baselines if mode not in measurements.TUNED_MODES]


def _begun(
    ctx: RunContext,
    threads: AtOnce,
    modes: Sequence[str],
    compiler: Future[None],
    seen: Future[None],
    checking: BoundedSemaphore,
) -> Callable[[], Compiled]:
    """Begin to compile in these modes; what is returned waits for all of them."""
    filling = {mode: threads.begin(partial(_filled, ctx, mode, compiler)) for mode in modes if mode != PLAIN}
    seen.result()
    candidates = {
        name: Attempt(id=f"{AT_THE_START}-{each.key.rewriter}", candidate=each, base=ctx.stack.top)
        for name, each in candidates_beside(ctx, modes).items()
    }
    checked = {n: threads.begin(partial(_checked, ctx, each, compiler, checking)) for n, each in candidates.items()}
    if PLAIN in modes and PLAIN not in candidates:
        filling[PLAIN] = threads.begin(partial(_filled, ctx, PLAIN, compiler))

    def wait() -> Compiled:
        builds, failed, endless, right = dict[str, Build](), dict[str, str](), 0, dict[str, Built]()
        for name, future in checked.items():
            built = future.result()
            finding = built.checked.finding
            if finding.verdict is None:
                right[name] = built
            elif name != PLAIN:
                _tell(ctx, built, finding.as_verdict())
            elif finding.evidence.get("fault") in ENDLESS:
                leave_out(ctx, failed, PLAIN, finding.reason)
                endless += 1
            else:
                _keep(ctx, built, finding.as_verdict())
                filling[PLAIN] = threads.begin(partial(_filled, ctx, PLAIN, compiler))
        if PLAIN in right:
            builds[PLAIN] = ctx.builds.compile_baselines[PLAIN] = right[PLAIN].checked.build
        for mode, filled in filling.items():
            if isinstance(found := filled.result(), Build):
                builds[mode] = found
            else:
                leave_out(ctx, failed, mode, str(found))
                endless += found.kind in ENDLESS
        return Compiled({m: builds[m] for m in modes if m in builds}, failed, 0 < len(modes) == endless, right)

    return wait


def _look(ctx: RunContext) -> None:
    with contextlib.suppress(WorkerFault):  # told when it is needed
        ctx.proposals.view()


def _prepare_compiler(ctx: RunContext) -> None:
    if ctx.builds.compile_baselines:
        ctx.progress.emit(Note("preparing the compiler, once for all that will be compiled"))
        ctx.referee.prepare_compiler()


def _checked_pristine(ctx: RunContext, checking: BoundedSemaphore) -> None:
    with checking:
        ctx.builds.pristine_checked()


def _checked(ctx: RunContext, attempt: Attempt, compiler: Future[None], checking: BoundedSemaphore) -> Built:
    compiler.result()
    with checking:
        ctx.display.say("compiling and checking", subject=attempt.candidate.shown)
        build, begun = ctx.builds.candidate(attempt), time.monotonic()
        if isinstance(build, Verdict):
            return Built(attempt, Checked(Finding(build.name, build.reason), ctx.referee.pristine))
        return Built(attempt, ctx.builds.checked(attempt), time.monotonic() - begun)


def _filled(ctx: RunContext, mode: str, compiler: Future[None]) -> Build | WorkerFault:
    """The build compiled in this mode, or why it does not run."""
    compiler.result()
    try:
        return ctx.builds.compile_baseline(mode)
    except WorkerFault as fault:
        return fault


def _side_by_side(ctx: RunContext, modes: int) -> tuple[int, int]:
    """How many things are done at once, and how many of them may be checks, for which there has to be memory. One where
    inputs are those of a seed: they are drawn in this order.
    """
    if ctx.config.seed is not None:
        return 1, 1
    if ctx.platform.device != "cuda":
        return 2, 2
    for checks, others in itertools.product(range(CHECKS, 0, -1), range(1 + modes, -1, -1)):
        if ctx.workload.fits(COPIES_IN_A_CHECK * checks + others):
            return checks + others, checks
    return 1, 1


def candidates_beside(ctx: RunContext, modes: Sequence[str]) -> dict[str, Candidate]:
    """What does to the target's source what one line of torch.compile does, where that can be said there; on a GPU
    with calls recorded, too, and what records them as they are.

    Measured beside the original, the plain one is a baseline and a candidate of its step at once.
    """
    if PLAIN not in modes or ctx.stack.commits():
        return {}
    on_gpu, found = ctx.platform.device == "cuda", dict[str, Candidate]()
    if PLAIN_STEP in ctx.config.steps:
        assumed: dict[str, Any] = {"recording_pays": True, "compile_breaks": 0} if on_gpu else {}
        proposed = ctx.proposals.propose(PLAIN_STEP, looking=True, **assumed)[0]
        if len({each.key.place for each in proposed}) == 1:
            plain = [each for each in proposed if (each.key.rewriter, each.key.variant) == (PLAIN_STEP, PLAIN_VARIANT)]
            recorded = [each for each in proposed if each.key.rewriter == RECORDER]
            found |= {PLAIN: plain[0]} if plain else {}
            found |= {RECORDED: recorded[0]} if plain and recorded else {}
    if on_gpu and RECORDED_STEP in ctx.config.steps:
        whole = ctx.proposals.propose(RECORDED_STEP, looking=True)[0]
        found |= {EAGER: whole[0]} if len(whole) == 1 else {}
    return found


def adopt(ctx: RunContext, candidates: dict[str, Built], measured: Measured, looked: Finding) -> None:
    """The first attempt of its step with its verdict, by what was measured: the better of those that are kept. What
    this leaves open is timed further by the step; where compiling gains nothing, so are calls recorded as they are.
    """
    decided, pristine = dict[str, Verdict](), ctx.builds.pristine_checked().build
    for name in [each for each in candidates if each in measured.comparisons]:
        compared = measured.comparisons[name]
        if not compared.failed and _is_open(ctx, compared):
            if looked.verdict is None and accept.look(compared.log_ratios, ctx.referee.delta) == "continue":
                ctx.referee.begin(compared)
            continue
        decided[name] = ctx.referee.decide(candidates[name].checked, compared, measured.outputs_of(name), pristine)
        if looked.verdict is None:
            decided[name].evidence["timed_outputs"] = looked.evidence
    kept = {name: each.speedup.median for name, each in decided.items() if each.name == "kept" and each.speedup}
    best = max(kept, key=lambda name: kept[name], default=PLAIN if PLAIN in candidates else EAGER)
    if best == RECORDED and PLAIN in kept and kept[best] <= kept[PLAIN] * (1 + ctx.referee.delta):
        best = PLAIN  # which is less
    for name, built in candidates.items():
        if name == best or (name == EAGER and not kept):
            _keep(ctx, built, decided.get(name))
        elif name != PLAIN:
            if name in decided and decided[name].name != "kept":
                _tell(ctx, built, decided[name])
            ctx.builds.forget(built.attempt)


def _tell(ctx: RunContext, built: Built, verdict: Verdict) -> None:
    """Write down why what was to be measured with the baseline is out: no step comes to it as it is."""
    candidate = built.attempt.candidate.model_copy(update={"role": "beside"})
    attempt = built.attempt.model_copy(update={"candidate": candidate})
    ctx.attempts.save(attempt)
    ctx.attempts.save_verdict(attempt.id, verdict)
    ctx.records.add(attempt, verdict)
    ctx.progress.emit(VerdictReached(attempt.id, candidate.shown, verdict.name, verdict.reason, verdict.speedup))


def _is_open(ctx: RunContext, compared: Comparison) -> bool:
    """Whether the first look leaves a gain open, or a longer A/A could show one."""
    noise, outcome = ctx.referee.noise, accept.look(compared.log_ratios, ctx.referee.delta)
    assert noise is not None, "the baseline comes first"
    hidden = accept.may_hide(noise, compared.interval(noise.delta), ctx.platform.device)
    return outcome == "continue" or (outcome == "neutral" and hidden)


def _keep(ctx: RunContext, built: Built, verdict: Verdict | None) -> None:
    """As the first attempt of its step, which finds it, and times it where it has no verdict."""
    attempt = built.attempt.model_copy(update={"id": f"{built.attempt.candidate.step}-1"})
    ctx.attempts.save(attempt)
    ctx.builds.know(attempt, built.checked)
    if verdict is not None:
        pristine = ctx.builds.pristine_checked().build
        verdict = ctx.referee.believed(verdict, built.checked, pristine, attempt.id)
        ctx.attempts.save_verdict(attempt.id, verdict)
