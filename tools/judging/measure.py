"""Measure a comparison: restarts until the accept rule has seen enough, and the tripwires of the clock.

`Clock` is the seam: `LiveClock` times workers; those of `recorded_clock.py` write to a file and answer from one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Protocol

from sandbox.contract import WouldNotFreeze
from sandbox.errors import DiskFull
from tools.judging import accept, agreement, device_state, disk, long_use
from tools.judging.agreement import NOBODY, REPEATS, Doubt
from tools.judging.clock import Session, SideFault, TimedOutput, Tripwire
from tools.judging.comparison import INCUMBENT, Comparison
from tools.judging.cores import Cores
from tools.judging.correctness import fault_verdict
from tools.judging.device_state import DeviceState
from tools.judging.inputs import InputSupply
from tools.judging.plan import inputs_needed
from tools.judging.worker import Build, Setting
from tools.judging.workload import Workload

AHEAD = (6, 3, 2)  # restarts prepared side by side, where there is room
AHEAD_INPUT_BYTES = 8 << 30  # on the disk at once, for more than one restart
COMPILER_BYTES = 1 << 30  # of memory in a worker that compiles, beyond what the original takes

Enough = Callable[[Comparison], bool]


class Hurried(Protocol):
    """Whether there is no time for what takes so many seconds more; `likely`: to show what was seen in each restart."""

    def __call__(self, seconds: float, likely: bool = False, /) -> bool: ...


@dataclass(frozen=True)
class ComparisonRequest:
    """What to compare with the incumbent, all in the same restarts, and when enough has been seen.

    `enough` is asked of every comparison after every restart; one that has enough is in no further restart.
    """

    purpose: str  # "aa", "whole stack", the id of an attempt, …: part of the name under which it is recorded
    incumbent: Build
    candidates: Mapping[str, Build]  # by a name, which is part of the purpose unless it is the only one
    enough: Enough
    malloc: bool = True  # whether workers have our fixed malloc settings
    progress: Callable[[int], None] = lambda restarts: None
    doing: Callable[[str], None] = lambda what: None  # shows what takes long between restarts
    fewest: int = accept.FIRST_LOOK  # restarts that are needed in any case: at most so many are prepared at once
    hurried: Hurried = lambda seconds, likely=False: False  # for a repetition that blames nobody
    counts: Callable[[Comparison], bool] = lambda found: True  # else nobody asks whether it slows the incumbent down
    low_serves: bool = False  # nor where it counts at the pace that the incumbent is known to have
    in_long_use: bool = False  # whether candidates that gain are looked at in long use, too
    begun: Comparison | None = None  # what is known of the only candidate: its restarts count, and are asked the same

    def blank(self, name: str) -> Comparison:
        purpose = self.purpose if len(self.candidates) == 1 else f"{self.purpose}: {name}"
        if self.begun is not None:
            return self.begun.model_copy(deep=True, update={"purpose": purpose})
        return Comparison(purpose=purpose, incumbent=self.incumbent.key, candidate=self.candidates[name].key)

    def may_slow_the_incumbent(self, name: str) -> bool:
        """Not the original under torch.compile, nor the incumbent beside itself."""
        candidate = self.candidates[name]
        return candidate.compile_options is None and candidate is not self.incumbent

    def is_incumbent(self, side: str) -> bool:
        """A copy of it as well."""
        return self.candidates.get(side, self.incumbent).key == self.incumbent.key


@dataclass(frozen=True)
class Measured:
    """By the name of the candidate: its comparison with the incumbent, and outputs of its timed calls to be checked."""

    comparisons: Mapping[str, Comparison]
    outputs: Sequence[TimedOutput] = ()

    @property
    def only(self) -> Comparison:
        (found,) = self.comparisons.values()
        return found

    def outputs_of(self, name: str) -> list[TimedOutput]:
        return [output for output in self.outputs if output.side == name]


Fill = Callable[[Build], Build]


class Clock(Protocol):
    """Returns one comparison for each candidate."""

    def compare(self, request: ComparisonRequest) -> Measured:
        """Raises: IncumbentFails, WorkloadError (inputs cannot be drawn), SandboxError."""
        ...

    def know(self, found: Comparison) -> None:
        """Use times that an earlier command of the same run has measured."""
        ...

    def filled(self, build: Build, fill: Fill) -> Build:
        """The build with its compile cache filled before it is timed. Raises: WorkerFault."""
        ...

    def close(self) -> None:
        """End what the clock has started."""
        ...


def enough_at_looks(
    decided: Callable[[Sequence[float]], bool],
    following: Callable[[Sequence[float]], int],
    hurried: Hurried,
    likely: Callable[[Sequence[float]], bool] = lambda ratios: False,
) -> Enough:
    """At a look: it is decided, or there is no time up to the `following` that counts, by what the restarts until now
    took.
    """

    def enough(found: Comparison) -> bool:
        count = len(found.log_ratios)
        if count not in accept.LOOKS:
            return False
        if count == max(accept.LOOKS) or decided(found.log_ratios):
            return True
        return hurried(found.wall_s / count * (following(found.log_ratios) - count), likely(found.log_ratios))

    return enough


def enough_to_judge(delta: float, hurried: Hurried) -> Enough:
    return enough_at_looks(
        lambda ratios: accept.look(ratios, delta) != "continue",
        lambda ratios: accept.next_chance(ratios, delta),
        hurried,
        lambda ratios: min(ratios) > delta,
    )


def enough_to_weigh(delta: float, hurried: Hurried) -> Enough:
    """Until it is clear whether a commit still earns its place, or there is no time for more: then it stays."""

    return enough_at_looks(
        lambda ratios: accept.still_worth(ratios, delta) != "continue",
        lambda ratios: accept.next_look(len(ratios) + 1),
        hurried,
    )


@dataclass
class LiveClock:
    """Times real workers. Remembers the times of each build, to detect a candidate that slows the incumbent down."""

    setting: Setting
    workload: Workload
    cores: Cores
    scratch: Path
    supply: InputSupply
    settle: Callable[[], None]  # returns when the device works, after a process has failed on it
    known_us: agreement.Known = field(default_factory=dict)

    def compare(self, request: ComparisonRequest) -> Measured:
        self._forget_outputs()
        failed: dict[str, Comparison] = {}
        doubted: Counter[str] = Counter()  # a first time may be chance: it is measured again
        repeated: list[str] = []
        while True:
            left = {name: request.blank(name) for name in request.candidates if name not in failed}
            for each in left.values():
                each.repeated = [*repeated]
            outputs: list[TimedOutput] = []
            doubt: Doubt | None
            begun = time.monotonic()
            if not left:
                return Measured(failed)
            try:
                doubt = self._measure(request, left, outputs)
            except SideFault as fault:
                if self.workload.device != "cpu":
                    self.supply.close()  # the fault may have taken the worker along that draws inputs
                self.settle()
                if isinstance(fault.fault, Tripwire) and request.is_incumbent(fault.side):
                    doubt = agreement.of_incumbent(fault)
                elif fault.may_be_chance and not doubted["fails beside it"]:
                    doubt = Doubt("fails beside it", str(fault))
                elif fault.side in left:
                    _blame(left[fault.side], fault)
                    failed[fault.side] = left[fault.side]
                    continue  # the others start over without it
                else:
                    self._check_incumbent(request)
                    why = f"beside it the incumbent fails, which runs by itself: {fault.fault}"
                    doubt = Doubt("fails beside it", why)
            except WouldNotFreeze as found:
                doubt = Doubt("guard", f"a guard fired on what draws the inputs: {found}")
            except DiskFull:
                if disk.is_full(self.setting.scratch):
                    raise
                doubt = Doubt("fails beside it", "beside it the disk gets full, which by itself has room")
            if doubt is not None:
                no_time = doubt.cause in NOBODY and request.hurried(time.monotonic() - begun)
                if doubted[doubt.cause] < REPEATS[doubt.cause] and not no_time:
                    doubted[doubt.cause] += 1
                    repeated.append(doubt.why)
                    request = replace(request, begun=None)  # it may be what is doubted
                    request.doing(f"measuring again: {doubt.why}")
                    continue
                for name, each in left.items():
                    if doubt.cause != "pace" or request.may_slow_the_incumbent(name):
                        doubt.tell(each)
            return Measured({name: failed.get(name) or left[name] for name in request.candidates}, outputs)

    def know(self, found: Comparison) -> None:
        self.known_us.setdefault(found.candidate, found.candidate_us)
        self.known_us.setdefault(found.incumbent, found.incumbent_us)

    def filled(self, build: Build, fill: Fill) -> Build:
        return fill(build)

    def close(self) -> None:
        self._forget_outputs()

    def _forget_outputs(self) -> None:
        """Of timed calls: they are looked at before the next comparison, or never."""
        for folder in self.scratch.glob("timed-*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _check_incumbent(self, request: ComparisonRequest) -> None:
        """One restart of it alone. Raises: IncumbentFails."""
        try:
            self._measure(request, {}, [])
        except SideFault as fault:
            agreement.of_incumbent(fault)
        except WouldNotFreeze:
            pass  # what draws the inputs

    def _measure(
        self, request: ComparisonRequest, found: dict[str, Comparison], outputs: list[TimedOutput]
    ) -> Doubt | None:
        """Fills in what was found; returns why it cannot be relied on, if so. Raises: SideFault."""
        doubt: Doubt | None = None
        keep = self.scratch / f"timed-{secrets.token_hex(6)}"
        keep.mkdir(mode=0o700, parents=True)
        builds = {INCUMBENT: request.incumbent, **{name: request.candidates[name] for name in found}}
        read = device_state.read if self.workload.device == "cuda" else list
        before: list[DeviceState] = read()
        elsewhere = os.sched_getaffinity(0)
        self.cores.free()
        try:
            with self.supply.opened() as inputs:
                session = Session(self.setting, self.workload, builds, inputs, self.cores, request.malloc)
                session.turns, session.keep = not self.workload.fits(len(builds)), keep
                session.outputs, session.doing = outputs, request.doing
                if request.in_long_use:
                    session.sizes = self.supply.other_sizes()
                with contextlib.closing(replace(session)) as several:
                    restarts, left = 0, dict(found)
                    while not restarts or left:
                        several.builds = {name: builds[name] for name in (INCUMBENT, *left)}
                        several.ahead = self._ahead(len(several.builds), request, restarts)
                        several.is_long = request.in_long_use and any(map(_may_be_kept_next, left.values()))
                        restart, restarts = several.restart(), restarts + 1
                        for name, each in left.items():
                            each.add(restart, name)
                        request.progress(restarts)
                        left = {name: each for name, each in left.items() if not request.enough(each)}
                    for name, each in found.items() if request.in_long_use else ():
                        several.builds, several.ahead = {INCUMBENT: request.incumbent, name: builds[name]}, 1
                        several.is_long = True
                        while request.counts(each) and (not each.size_ratios or long_use.is_doubtful(each)):
                            each.add_long_use(several.restart(), name)
                beside = replace(session, ahead=self._together(len(builds), range(agreement.TURNS, 0, -1)))
                for name, each in [*found.items()]:
                    if request.may_slow_the_incumbent(name) and request.counts(each):
                        found[name], doubted = self._beside_itself(request, each, beside)
                        doubt = doubted or doubt
        finally:
            os.sched_setaffinity(0, elsewhere)
        after: list[DeviceState] = read()
        for each in found.values():
            each.devices_before, each.devices_after = before, after
            if not each.refused and doubt is None:
                self.know(each)
        return doubt

    def _beside_itself(
        self, request: ComparisonRequest, found: Comparison, beside: Session
    ) -> tuple[Comparison, Doubt | None]:
        """What of a comparison counts, and why it cannot be relied on, if so."""
        low = agreement.at_known_pace(found, self.known_us)
        if low is not found and request.low_serves and request.counts(low):
            return low, None
        has_time = not request.hurried(found.wall_s / len(found.log_ratios) * agreement.TURNS)
        return found, agreement.check(found, beside, self.known_us, has_time=has_time)

    def _ahead(self, sides: int, request: ComparisonRequest, done: int) -> int:
        """How many of its restarts are prepared side by side, when so many are done."""
        most = request.fewest - done if done < request.fewest else done  # each look at least doubles the restarts
        return self._together(sides, [n for n in AHEAD if n <= most])

    def _together(self, sides: int, steps: Iterable[int]) -> int:
        """The first of these numbers of restarts that there is room to prepare side by side: that is most of what a
        restart takes on a GPU, and on a CPU where one side compiles and the other waits for it.
        """
        input_bytes = sides * sum(inputs_needed(self.workload, case) * case.input_bytes for case in self.workload.cases)
        wanted = [n for n in steps if n * input_bytes <= AHEAD_INPUT_BYTES]
        return next((n for n in wanted if self._has_room(n * sides)), 1)

    def _has_room(self, workers: int) -> bool:
        """Each starts on one core most of the time, and nothing is timed then."""
        cpus = len(self.cores.cpus)
        if self.workload.device == "cpu":
            most = self.setting.limits.memory_bytes or 0
            return workers <= 3 * cpus and workers * (self.workload.peak_bytes + COMPILER_BYTES) <= most
        return workers <= cpus * 5 // 4 and self.workload.fits(workers)


def _may_be_kept_next(found: Comparison) -> bool:
    """Whether the restart to come ends at a look, and the candidate has gained until now."""
    known = found.log_ratios
    return len(known) + 1 in accept.LOOKS and median(known or [0.0]) > 0


def _blame(found: Comparison, fault: SideFault) -> None:
    if isinstance(fault.fault, Tripwire):
        found.refused = str(fault.fault)
        return
    verdict, reason = fault_verdict(fault.fault)
    if verdict == "refused":
        found.refused = reason
    else:
        found.broken = reason
