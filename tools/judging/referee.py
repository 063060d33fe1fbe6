"""The referee: proves a candidate or says why not, only by what can be observed from outside the candidate.

Order: correctness on secret inputs, time beside the incumbent, the outputs of timed calls, the target's own tests.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tools.errors import IncumbentFails, WorkloadError, workload_error
from tools.judging import accept, long_use, own_tests, timed_outputs, toolchain
from tools.judging.accept import NoiseFloor
from tools.judging.check import Checked, Checks
from tools.judging.clock import TimedOutput
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.device_health import DeviceHealth
from tools.judging.grounds import Grounds
from tools.judging.inputs import InputSupply
from tools.judging.measure import Clock, ComparisonRequest, Enough, Hurried, Measured, enough_to_judge
from tools.judging.own_tests import OwnTests
from tools.judging.verdict import Verdict, VerdictName, of_failed
from tools.judging.worker import Build, Setting
from tools.judging.workload import Workload
from tools.tree_removal import remove_tree

# a gain this large is judged twice, on new inputs: it is more often a mistake than a discovery
QUARANTINE = 10.0
ITSELF = "itself"  # the name of the original beside its own copy, in the A/A comparison

Say = Callable[[str, int, int], None]  # what is being done, how far, of how much (0: unknown)


@dataclass
class Referee:
    """Judges builds of one target. `noise` is set by `measure_noise`, without which nothing can be kept."""

    setting: Setting
    workload: Workload
    pristine: Build
    clock: Clock
    scratch: Path
    health: DeviceHealth
    supply: InputSupply
    noise: NoiseFloor | None = None
    aa: Comparison | None = None  # what that was measured by
    grounds: Grounds = field(default_factory=Grounds)
    own_tests: OwnTests | None = None  # the target's, as they were before any change; set by `run_own_tests`
    say: Say = lambda what, done, of: None
    hurried: Hurried = lambda seconds, likely=False: False
    rng: random.Random = field(default_factory=random.SystemRandom)
    _begun: dict[tuple[str, str], Comparison] = field(default_factory=dict)
    ahead: toolchain.Ahead | None = None  # makes the toolchain since before the target was known

    def __post_init__(self) -> None:
        # closed to workers with another user id: it holds inputs before they are revealed
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def delta(self) -> float:
        if self.noise is None:
            raise ValueError("measure_noise comes first")
        return self.noise.delta

    def close(self) -> None:
        """End the worker that draws inputs, and what is still being made."""
        self.clock.close()
        self.supply.close()
        if self.ahead is not None:
            self.ahead.end()

    def prepare_compiler(self) -> None:
        """Make the shared toolchain, where it is missing; until then each worker makes its own."""
        told, device, made = self.workload.environment, self.workload.device, self.setting.toolchain
        if made is None:
            return
        bytecode = told.get("library_bytecode") is False
        if self.ahead is None or not self.ahead.serves(device, bytecode):
            remove_tree(made)
            if bytecode or (device == "cpu" and told.get("cpp_compiler")):
                toolchain.make(self.setting, device, bytecode=bytecode)
        if made.exists():
            self.grounds.share([made])

    # -- correctness

    @property
    def _checks(self) -> Checks:
        return Checks(self.setting, self.workload, self.pristine, self.scratch, self.grounds, self.supply, rng=self.rng)

    def check(self, build: Build) -> Checked:
        """Is it right? Also fills and freezes the build's compile cache.

        Raises: WorkloadError, GroundsChanged, DeviceLost, SandboxError.
        """
        self.grounds.check()
        self.say("checking", 0, 0)
        try:
            checked = self._checks.check(build)
        except WorkloadError:
            if build.key == self.pristine.key:
                raise
            checked = self._check_again(build)
        if checked.finding.may_be_chance:
            checked = self._checks.check(build)
        if checked.finding.verdict == "broken":
            self.health.settle()
        return checked

    def _check_again(self, build: Build) -> Checked:
        """After the original failed beside it: a GPU fault, or a lack of memory or time, ends other processes too.

        Raises: WorkloadError when the original fails by itself.
        """
        self.health.settle()
        alone = self._checks.check(self.pristine).finding
        if alone.verdict:
            raise workload_error("call_raised", alone.reason, "", self.setting.entry, None)
        try:
            return self._checks.check(build)
        except WorkloadError as error:
            reason = f"beside it the original fails, which runs by itself: {error.message.splitlines()[0]}"
            return Checked(Finding("broken", reason), build)

    def check_pristine(self) -> Checked:
        """The pristine build judged like a candidate. Raises: WorkloadError when it does not pass its own check."""
        checked = self.check(self.pristine)
        if checked.finding.verdict:
            kind = "not_deterministic" if checked.finding.verdict == "wrong" else "call_raised"
            raise workload_error(kind, checked.finding.reason, "", self.setting.entry, None)
        return checked

    def fill(self, build: Build) -> Build:
        """The build with its compile cache filled; says nothing about correctness. Raises: WorkerFault."""
        return self.clock.filled(build, self._checks.fill)

    # -- timing

    def measure_noise(self, beside: Mapping[str, Build] = MappingProxyType({})) -> tuple[NoiseFloor, Measured]:
        """The A/A comparison of this session: the pristine build against itself, and in the first of its restarts, as
        many as a first look takes, against the builds `beside` it, by name. Raises: IncumbentFails.
        """

        def enough(found: Comparison) -> bool:
            count, most = len(found.log_ratios), min(accept.AA_LOOKS)
            if found.candidate != found.incumbent:
                return count >= accept.FIRST_LOOK
            if count == accept.FEWEST_FOR_NOISE:
                return self.hurried(found.wall_s / count * (most - count))
            return count >= most

        found = self._against_itself("aa", enough, beside)
        aa = found.comparisons[ITSELF]
        if failed := aa.refused or aa.broken:
            raise IncumbentFails(f"The original fails while it is timed beside its own copy: {failed}")
        return self.use_noise(aa), found

    def narrow_noise(self) -> NoiseFloor:
        """The floor from as many restarts as an A/A has at most, if it is a wide one and there is time for them.

        It stays as it is where that fails. Raises: IncumbentFails.
        """
        assert self.noise is not None, "measure_noise comes first"
        if self.aa is None:  # a floor that was set
            return self.noise
        known, most = len(self.aa.log_ratios), max(accept.AA_LOOKS)
        if known >= most or self.noise.delta <= accept.AA_WIDE:
            return self.noise
        if self.hurried(self.aa.wall_s / known * (most - known + accept.FIRST_LOOK)):  # and the change once more
            return self.noise
        more = self._against_itself("aa, longer", lambda found: known + len(found.log_ratios) >= most, known=known).only
        return self.noise if more.failed else self.use_noise(self.aa.followed_by(more))

    def _against_itself(
        self, purpose: str, enough: Enough, beside: Mapping[str, Build] = MappingProxyType({}), known: int = 0
    ) -> Measured:
        def progress(restarts: int) -> None:
            look = next(count for count in accept.AA_LOOKS if known + restarts <= count)
            self.say("measuring the noise floor (A/A)", known + restarts, look)

        sides, fewest = {ITSELF: self.pristine, **beside}, accept.FIRST_LOOK if beside else min(accept.AA_LOOKS)
        return self._compare(purpose, self.pristine, sides, enough, progress=progress, fewest=fewest)

    def use_noise(self, aa: Comparison) -> NoiseFloor:
        """The noise floor from an A/A comparison of this run; nothing can be kept by one that is unsettled."""
        noise = accept.noise_floor([0.0] if aa.unsettled else aa.log_ratios, self.workload.device)
        self.aa, self.noise = aa, replace(noise, usable=False, reason=aa.unsettled) if aa.unsettled else noise
        self.clock.know(aa)
        return self.noise

    def _compare(
        self, purpose: str, incumbent: Build, of: Build | Mapping[str, Build], enough: Enough, **how: Any
    ) -> Measured:
        candidates = {"candidate": of} if isinstance(of, Build) else of
        request = ComparisonRequest(
            purpose, incumbent, candidates, enough, doing=lambda what: self.say(what, 0, 0), **how
        )
        return self.clock.compare(request)

    def compare(self, purpose: str, incumbent: Build, candidate: Build) -> Measured:
        """Fresh restarts until a look of the accept rule decides, or there is no time up to the next one.

        What others have begun of this sequence counts.
        """
        begun = self._begun.pop((incumbent.key, candidate.key), None)
        before = 0 if begun is None else len(begun.log_ratios)
        return self._compare(
            purpose,
            incumbent,
            candidate,
            enough_to_judge(self.delta, self.hurried),
            progress=lambda n: self.say("timing", before + n, accept.next_look(before + n)),
            counts=self.would_keep,
            low_serves=True,
            in_long_use=True,
            begun=begun,
        )

    def begin(self, found: Comparison) -> None:
        """The first restarts of a sequence that is still to be decided: they were measured beside others."""
        self._begun[found.incumbent, found.candidate] = found

    def would_keep(self, found: Comparison) -> bool:
        return accept.look(found.log_ratios, self.delta) == "kept"

    def report_on(
        self, purpose: str, incumbent: Build, candidates: Mapping[str, Build], *, malloc: bool = True
    ) -> Measured:
        """A fresh comparison for the report: 6 restarts, or 12 where 6 leave it open, or wide and there is time; 6
        with default malloc; 3 where there is no time.
        """

        fewest, most = accept.REPORT_LOOKS
        known_s = self.aa.wall_s / len(self.aa.log_ratios) if self.aa is not None else 0.0

        def enough(found: Comparison) -> bool:
            count = len(found.log_ratios)
            if count == accept.FIRST_LOOK and self.hurried(found.wall_s / count * (fewest - count)):
                return True
            if not malloc:
                return count >= fewest
            return accept.enough_for_report(found.log_ratios, self.delta, wide_serves=self.hurried(0.0))

        return self._compare(
            purpose,
            incumbent,
            candidates,
            enough,
            malloc=malloc,
            hurried=self.hurried,
            progress=lambda n: self.say(f"measuring {purpose}", n, fewest if n <= fewest else most),
            fewest=accept.FIRST_LOOK if self.hurried(known_s * fewest) else fewest,
        )

    def judge(self, candidate: Build, incumbent: Build, purpose: str = "judge") -> tuple[Verdict, Build]:
        """The verdict on a candidate against the top of the stack, and the candidate's build with its cache."""
        checked = self.check(candidate)
        return self.time(checked, incumbent, purpose), checked.build

    def time(self, checked: Checked, incumbent: Build, purpose: str = "judge") -> Verdict:
        """The verdict on a checked build. A gain that the noise floor may hide is timed a second time, above a narrower
        one; a gain beyond belief is checked and timed a second time.
        """
        begun = time.monotonic()
        verdict = self._time_once(checked, incumbent, purpose)
        above = self.noise
        if self._hides(verdict) and self.narrow_noise() != above:
            first, verdict = verdict, self._time_once(checked, incumbent, f"{purpose} above less noise")
            verdict.evidence["above_more_noise"] = first.evidence
        verdict = self.believed(verdict, checked, incumbent, purpose)
        verdict.evidence["wall_s"] = round(time.monotonic() - begun, 1)
        return verdict

    def believed(self, first: Verdict, checked: Checked, incumbent: Build, purpose: str) -> Verdict:
        """The first verdict, or where it is a gain beyond belief that of a second check and of other restarts."""
        if first.name != "kept" or first.speedup is None or first.speedup.median <= QUARANTINE:
            return first
        verdict = self._time_once(self.check(checked.build), incumbent, f"{purpose} again")
        verdict.evidence["before_quarantine"] = first.evidence
        return verdict

    def _hides(self, verdict: Verdict) -> bool:
        if verdict.name != "neutral" or verdict.speedup is None or self.noise is None:
            return False
        return accept.may_hide(self.noise, verdict.speedup, self.workload.device)

    def _time_once(self, checked: Checked, incumbent: Build, purpose: str) -> Verdict:
        if checked.finding.verdict:
            return checked.finding.as_verdict()
        measured = self.compare(purpose, incumbent, checked.build)
        return self.decide(checked, measured.only, measured.outputs, incumbent)

    def decide(
        self, checked: Checked, compared: Comparison, outputs: Sequence[TimedOutput], incumbent: Build
    ) -> Verdict:
        """The verdict on a build that is right, from its comparison with the top of the stack."""
        evidence: dict[str, Any] = {"correctness": checked.finding.evidence}
        evidence["comparison"] = compared.summary(self.delta)
        if changed := self.grounds.changes(checked.build, incumbent):  # whatever was timed
            reason = f"it changed what it may not touch: {changed[0]}"
            return Verdict(name="refused", reason=reason, evidence={**evidence, "changed": changed[:20]})
        if failed := of_failed(compared, evidence):
            return failed
        if (outcome := accept.look(compared.log_ratios, self.delta)) != "kept":
            return self._by_time(outcome, compared, evidence)
        return self._wrong_while_timed(outputs, evidence) or self._kept(checked.build, compared, evidence)

    def run_own_tests(self) -> OwnTests:
        """The target's own tests as it came; what passes must still pass in everything that is kept."""
        self.say("running the target's own tests", 0, 0)
        self.own_tests = own_tests.run_pristine(self.setting, self.pristine)
        return self.own_tests

    def tests_broken_by(self, build: Build) -> list[str]:
        """The target's own tests that pass without this build and not with it."""
        if self.own_tests is None or not self.own_tests.passed:
            return []
        self.say("running the target's own tests", 0, 0)
        return own_tests.broken_by(self.own_tests, self.setting, self.pristine, build)

    def _kept(self, build: Build, compared: Comparison, evidence: dict[str, Any]) -> Verdict:
        def verdict(name: VerdictName, reason: str, **more: Any) -> Verdict:
            interval = compared.interval(self.delta)
            return Verdict(name=name, reason=reason, speedup=interval, evidence={**evidence, **more})

        for rows, calls in (
            (compared.case_log_ratios, "most calls"),
            (compared.case_total_log_ratios, "all calls together"),
        ):
            for case, column in zip(self.workload.cases, zip(*rows, strict=True), strict=True):
                if accept.regresses(column):
                    return verdict("slower", f"faster on the whole, but {calls} of {case.name} take longer")
        if not accept.gains_in_total(compared.total_log_ratios, self.delta):
            reason = "most calls are faster, but all of them together, with what goes before them, are not"
            return verdict("neutral", reason)
        if 2 * accept.short_of(compared.staged_log_ratios, 0.0) > len(compared.staged_log_ratios):
            return verdict("neutral", "what its calls take less, staging takes longer")
        if against := long_use.speaks_against(compared):
            return verdict(*against)
        if self.noise is not None and not self.noise.usable:
            return verdict("inconclusive", f"this machine is too noisy: {self.noise.reason}")
        if broken := self.tests_broken_by(build):
            reason = f"{len(broken)} of the target's own tests no longer pass: {broken[0]}"
            return verdict("wrong", reason, tests=broken[:20])
        return verdict("kept", f"every one of the deciding restarts gained more than {self.delta:.1%}")

    def _by_time(self, outcome: str, found: Comparison, evidence: dict[str, Any]) -> Verdict:
        name: VerdictName = "neutral"
        restarts = len(found.log_ratios)
        if outcome == "slower":
            name, reason = "slower", f"a loss was shown in {restarts} restarts"
        elif outcome == "continue":
            reason = f"{restarts} restarts leave a gain above {self.delta:.1%} open, and there was no time for others"
        else:
            reason = f"no gain above {self.delta:.1%} could be shown in {restarts} restarts"
        return Verdict(name=name, reason=reason, speedup=found.interval(self.delta), evidence=evidence)

    def check_whole(self, found: Comparison, outputs: Sequence[TimedOutput]) -> Verdict:
        """The verdict on a whole stack, from its last comparison with the original: kept when it still is faster.

        Each of its changes was proven where the machine kept its pace: no whole is given up because it does not.
        """
        evidence: dict[str, Any] = {"whole": found.summary(self.delta)}
        counts = found.model_copy(update={"unsettled": ""}) if found.pace_us else found
        if failed := of_failed(counts, evidence):
            return failed
        interval = found.interval(self.delta)
        if accept.is_open(found.log_ratios):
            reason = f"{len(found.log_ratios)} restarts leave it open, and there was no time for others"
            wrong = self._wrong_while_timed(outputs, evidence)
            return wrong or Verdict(name="inconclusive", reason=reason, speedup=interval, evidence=evidence)
        if not accept.holds(found.log_ratios):
            reason = f"not shown to be faster than the original in {len(found.log_ratios)} restarts more"
            return Verdict(name="neutral", reason=reason, speedup=interval, evidence=evidence)
        wrong = self._wrong_while_timed(outputs, evidence)
        reason = "faster when it was measured once more"
        return wrong or Verdict(name="kept", reason=reason, speedup=interval, evidence=evidence)

    def _wrong_while_timed(self, outputs: Sequence[TimedOutput], evidence: dict[str, Any]) -> Verdict | None:
        """The verdict where outputs of timed calls are not right; what was looked at is put into `evidence`."""
        finding = self.check_timed(outputs)
        evidence["timed_outputs"] = finding.evidence
        if not finding.verdict:
            return None
        reason = f"what it returned while it was timed: {finding.reason}"
        return Verdict(name=finding.verdict, reason=reason, evidence=evidence)

    def check_timed(self, outputs: Sequence[TimedOutput]) -> Finding:
        """Are outputs of timed calls those they were committed to, and right? Raises: WorkloadError, SandboxError."""
        if not outputs:
            return Finding(None, "")
        self.say("checking timed outputs", 0, 0)
        with self.supply.answering() as reference:
            return timed_outputs.check(reference, self.workload, outputs)
