"""Check a build: the pristine model and the candidate answer the same script of calls; the saved bytes are judged.

What is right is decided in `correctness.py`.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sandbox.errors import DiskFull
from tools.errors import WorkloadError
from tools.judging import correctness, disk, tensors
from tools.judging.accuracy import has_numbers
from tools.judging.asking import Inspection
from tools.judging.correctness import Finding
from tools.judging.described import AsBuilt, Compiled, Settings
from tools.judging.folders import CACHE
from tools.judging.grounds import Grounds
from tools.judging.inputs import InputSupply
from tools.judging.player import Player
from tools.judging.script import Call, Case, Draw, Played, Script
from tools.judging.worker import Build, Setting, Worker, WorkerFault, blamed_on
from tools.judging.workload import INPUTS, Workload

# the candidate and the original in its own precision, which is widened from 16 to 64 bits while both are there
COPIES_IN_A_CHECK = 6
# a call that compiles nothing takes no longer than this and so many eager calls
AGAIN_S, MUCH_SLOWER = 20.0, 3.0

Asks = Literal["all", "answered", "declared"]  # of the inputs that an entry does not declare


@dataclass(frozen=True)
class Checked:
    """A build that was checked: the finding, and the build, with its compile cache filled if it is right."""

    finding: Finding
    build: Build


@dataclass
class _CompilesAgain:
    """Times of new inputs by shape. Two may be long: torch.compile compiles once more for other sizes."""

    cases: Sequence[Case]
    _took_s: dict[int, list[float]] = field(default_factory=dict)

    def took(self, case: Case, seconds: float) -> None:
        """Raises: WorkerFault."""
        if case not in self.cases:
            return
        number = self.cases.index(case)
        took_s = self._took_s.setdefault(number, [])
        took_s.append(seconds)
        if len(took_s) >= INPUTS and min(took_s) > AGAIN_S + MUCH_SLOWER * self.cases[number].call_s:
            told = ", ".join(f"{each:.0f} s" for each in took_s)
            message = f"each new input takes long, as if compiled for: calls of one shape took {told}"
            raise WorkerFault("compiles_again", message)


@dataclass(frozen=True)
class Checks:
    """How builds of one target are checked."""

    setting: Setting
    workload: Workload
    pristine: Build
    scratch: Path
    grounds: Grounds
    supply: InputSupply
    rng: random.Random

    def check(self, build: Build) -> Checked:
        """Is it right? Also fills and freezes the build's compile cache. Raises: WorkloadError, SandboxError."""
        self.grounds.watch(build.tree)
        asks: Asks
        for asks in ("all", "answered"):
            try:
                return self._beside_the_original(build, asks)
            except WorkloadError as error:
                fault = error.__cause__
                if isinstance(fault, WorkerFault) and fault.kind == "device_failed":
                    break
                if not (isinstance(fault, WorkerFault) and fault.survived):
                    raise
        return self._beside_the_original(build, "declared")

    def _beside_the_original(self, build: Build, asks: Asks) -> Checked:
        """`asks` is which of the inputs that the entry does not declare: "all", which the original nearly always
        answers; those that it "answered" when it was asked; or none, only what is "declared", where it answers them in
        one precision and not in the other.

        Raises: WorkloadError, SandboxError.
        """
        script = self.workload.script(self.rng)
        folder = self.scratch / f"check-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        with (
            ThreadPoolExecutor(2) as background,
            Worker(self.setting, self.pristine, "reference", timeout_s=self.setting.check_timeout_s) as reference,
            self._worker(build, poison=True) as candidate,
        ):
            try:
                return self._check(build, script, folder, reference, candidate, background, asks)
            except DiskFull:
                candidate.close()
                if disk.is_full(self.setting.scratch):
                    raise
                return Checked(Finding("broken", "it fills the disk"), build)

    def _worker(self, build: Build, *, poison: bool = False) -> Worker:
        compile_threads = len(os.sched_getaffinity(0))  # on two cores a tenth less than with one
        timeout_s = self.setting.check_timeout_s
        return Worker(
            self.setting, build, poison=poison, compile_threads=compile_threads, timeout_s=timeout_s, in_all=True
        )

    def _build(self, worker: Worker) -> AsBuilt | None:
        """Raises: WorkerFault."""
        worker.ask("build", compile_options=worker.build.compile_options, **self.workload.build_arguments(worker))
        return worker.ask_for(AsBuilt, "as_built", key=1) if self.workload.as_built else None

    def _check(
        self,
        build: Build,
        script: Script,
        folder: Path,
        reference: Worker,
        candidate: Worker,
        background: ThreadPoolExecutor,
        asks: Asks,
    ) -> Checked:
        together = self.workload.fits(COPIES_IN_A_CHECK, self.workload.gradient_bytes or 0)
        built = background.submit(self._build, candidate) if together else None
        if asks == "answered":
            script = self._ask_first(reference, script, folder)
        elif asks == "declared":
            script = script.only([draw.seed if self._declared(draw) else None for draw in script.draws])
        ready = background.submit(self._build, reference)
        drawn = self.supply.draw_script(script, folder)
        truth = background.submit(self._play_reference, reference, ready, script, drawn, asks == "all")
        if built is None:
            truth.result()
            reference.ask("release")
            built = background.submit(self._build, candidate)
        try:
            built.result()
            took = _CompilesAgain(self.workload.cases).took
            played = Player(self.workload, candidate, script, drawn, "candidate", took=took).play()
            tripped, compiled = candidate.tripped(), candidate.ask_for(Compiled, "compiled")
            settings = candidate.ask_for(Settings, "settings")
        except WorkerFault as fault:
            candidate.stop()
            truth.result()
            return Checked(_finding(fault), build)
        baseline, wide = truth.result()
        candidate.stop()
        tripped -= reference.tripped()
        sets, preferred = settings.beside(reference.ask_for(Settings, "settings"))
        judge = partial(correctness.judge_script, script, played, baseline, wide, drawn, self.workload.rules, reference)
        finding = self._in_some_rounding(judge, script, drawn, baseline, reference)
        if not finding.verdict:
            differs = begins_otherwise(built.result(), ready.result(), self.workload.as_built)
            finding = Finding("wrong", differs) if differs else finding
        finding = self._of_the_process(finding, build, tripped, sets)
        finding.evidence.update(self._evidence(compiled, played.first_call_s, preferred))
        if finding.verdict:
            return Checked(finding, build)
        try:
            return Checked(finding, self._with_cache(build, candidate))
        except WorkerFault as fault:
            return Checked(_finding(fault), build)

    def _in_some_rounding(
        self, judge: Callable[..., Finding], script: Script, drawn: list[Path], baseline: Played, reference: Worker
    ) -> Finding:
        """By what the original answers, or might have answered."""
        finding = judge()
        with contextlib.suppress(WorkerFault):  # not all runs with operands rounded
            for how in self.workload.other_roundings(reference) if finding.of_numbers else ():
                reference.ask("precision", **how)
                finding = judge(Player(self.workload, reference, script, drawn, how["how"], baseline, ()).play())
                if not finding.of_numbers:
                    break
        return finding

    def _of_the_process(self, finding: Finding, build: Build, tripped: set[str], sets: list[str]) -> Finding:
        """What it does beside answering."""
        if changed := self.grounds.changes(build):
            return Finding("refused", f"it changed what it may not touch: {changed[0]}", {"changed": changed[:20]})
        if tripped:
            reason = f"it replaces {min(tripped)}, which the original does not"
            return Finding("refused", reason, {"replaced": sorted(tripped)[:20]})
        if sets and not finding.verdict:
            reason = f"it sets {sets[0]} for all of the process, which the original does not"
            return Finding("refused", reason, {"sets": sets[:20]})
        return finding

    def _evidence(self, compiled: Compiled, first_call_s: float, preferred: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {"truth": self.workload.precision or "the target's own precision"}
        if compiled.graphs:
            found["compiled"] = {
                **compiled.model_dump(exclude={"not_recorded"}),
                "first_call_s": round(first_call_s, 2),
            }
        told = {
            "preferences": preferred,
            "not_recorded": compiled.not_recorded,
            "not_asked": [*self.workload.not_asked],
            "weights_without_effect": [*self.workload.without_effect][:20],
        }
        return found | {name: names for name, names in told.items() if names}

    def fill(self, build: Build) -> Build:
        """The build with its compile cache filled by a few calls of every case, and its graph breaks; says nothing
        about correctness.

        Raises: WorkerFault when it does not run, or compiles itself for a long time for each of them.
        """
        self.grounds.watch(build.tree)
        with self._worker(build) as worker:
            self._call_all(worker)
            compiled = worker.ask_for(Compiled, "compiled")
            worker.stop()
            return replace(self._with_cache(build, worker), graph_breaks=compiled.graph_breaks)

    def _call_all(self, worker: Worker) -> None:
        self._build(worker)
        for which in sorted(self.workload.states) or [""]:
            if which:
                worker.ask("load_state", path=worker.reveal(self.workload.states[which]))
            for case, inputs in zip(self.workload.cases, self.workload.inputs, strict=True):
                seen = _CompilesAgain(self.workload.cases)
                for each in inputs:
                    seen.took(case, self._call_s(worker, case, each))

    def _call_s(self, worker: Worker, case: Case, source: Path) -> float:
        shown, constants = worker.reveal(source), list(self.workload.constants)
        worker.ask("stage", path=shown, constants=constants, phase=case.phase)
        begun = time.monotonic()
        worker.ask("call", key=1)
        return time.monotonic() - begun

    def _with_cache(self, build: Build, worker: Worker) -> Build:
        """The build with what this worker has compiled, frozen."""
        into = self.scratch / "caches" / f"{build.key}-{secrets.token_hex(3)}"
        return replace(build, cache=self.grounds.watch(worker.keep(CACHE, into)))

    def _ask_first(self, reference: Worker, script: Script, folder: Path) -> Script:
        """Without undeclared shapes and values that the original does not answer. Raises: WorkloadError."""
        with blamed_on(self.setting.entry):
            reference.ask("describe", **self.workload.drawing_arguments)
            self._build(reference)
            asked, seeds = Inspection(reference, folder, self.workload.constants), list[int | None]()
            for draw in script.draws:
                is_known = self._declared(draw) or draw.variant in self.workload.refused
                seeds.append(draw.seed if is_known else asked.possible_seed(draw.case, self.rng, draw.variant))
        return script.only(seeds)

    def _declared(self, draw: Draw) -> bool:
        return not draw.variant and draw.case in self.workload.cases

    def _play_reference(
        self, reference: Worker, ready: Future[AsBuilt | None], script: Script, drawn: list[Path], expects_numbers: bool
    ) -> tuple[Played, Played]:
        """In the target's own precision, and in that of the truth. Raises: WorkloadError, DiskFull."""
        with blamed_on(self.setting.entry):
            try:
                ready.result()
                baseline = Player(self.workload, reference, script, drawn, "baseline").play()
                if expects_numbers:
                    self._expect_numbers(script, baseline)
                if not self.workload.precision:
                    return baseline, baseline
                written = correctness.written(script, baseline, drawn)
                reference.ask("precision", name=self.workload.precision)
                return baseline, Player(self.workload, reference, script, drawn, "truth", baseline, written).play()
            except WorkerFault as fault:
                if fault.kind == "disk_full":  # beside a candidate, which may be what fills it
                    raise DiskFull(fault.message) from fault
                raise

    def _expect_numbers(self, script: Script, baseline: Played) -> None:
        """Raises: WorkerFault where it answers none to what the entry does not declare."""
        for index, path in baseline.outputs.items():
            step = script.steps[index]
            if not isinstance(step, Call) or self._declared(draw := script.draws[step.draw]) or not draw.has_numbers:
                continue
            if not all(map(has_numbers, tensors.read(path).leaves)):
                raise WorkerFault("degenerate", f"{step.label}: it answers no numbers")


def begins_otherwise(mine: AsBuilt | None, theirs: AsBuilt | None, known: AsBuilt | None) -> str:
    """What of the model is not as in the original before anything is loaded; empty where nothing is. `known` was seen
    in another process, and tells whether its numbers are the same in each.
    """
    if mine is None or theirs is None or known is None:
        return ""
    if [*mine.learns] != [*theirs.learns]:
        return "its parameters are others, or come in another order, which optimizers number them by"
    if odd := [name for name in mine.learns if mine.learns[name] is not theirs.learns[name]]:
        return f"{odd[0]} {'learns' if mine.learns[odd[0]] else 'does not learn'}, otherwise than in the original"
    if theirs == known and mine.state == theirs.state and mine.digest != theirs.digest:
        return "it begins with other numbers than the original does"
    return ""


def _finding(fault: WorkerFault) -> Finding:
    verdict, reason = correctness.fault_verdict(fault)
    return Finding(verdict, reason, {"fault": fault.kind}, fault.may_be_chance)
