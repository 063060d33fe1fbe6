"""The clock: interleaved timings of builds beside an incumbent, on the host, restart by restart.

A call is timed from the host's request to the digest that commits the worker to its outputs. Each timed input is
revealed when its turn comes, to one worker, once. While one worker is timed the others are frozen. Nothing that a
worker says about time is used; decisions are made in `accept.py`.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sandbox.contract import WouldNotFreeze
from tools.judging import long_use
from tools.judging.comparison import INCUMBENT, Restart, Side
from tools.judging.cores import Cores
from tools.judging.inputs import DrawInputs, Input, Inputs
from tools.judging.long_use import LongUse, OtherSize
from tools.judging.plan import SAMPLES, WARM_UP, Plan
from tools.judging.script import POSITIVE_63
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Workload

CPU_SLACK_S = 0.02  # resolution of the kernel's accounting


@dataclass(frozen=True)
class TimedOutput:
    """Outputs of one randomly chosen timed call, kept to be checked afterwards."""

    side: str
    case: int
    input: Input
    output: Path
    commitment: tuple[int, str]


class Tripwire(Exception):
    """A worker did something that no honest worker does."""

    may_be_chance = False


class DidNotHoldStill(Tripwire):
    """It was seen to run while another was timed; on a loaded machine an honest worker may be, once."""

    may_be_chance = True


@dataclass
class Group:
    """The workers of one restart that are timed in turns, and the inputs they have not used yet."""

    workers: dict[str, Worker]
    staged: Mapping[str, Inputs] = field(default_factory=dict)
    cursor: dict[str, list[int]] = field(default_factory=dict)  # by side and case: inputs used
    used_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of CPU time, while timed
    wall_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    prepared_s: float = 0.0  # its share of what it took to prepare it and those beside it

    def next(self, name: str, case: int) -> Input:
        return self.staged[name][case][self.cursor[name][case]]

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        for each in [each for inputs in self.staged.values() for case in inputs for each in case]:
            each.path.unlink(missing_ok=True)


@dataclass
class Session:
    """A series of restarts of the same builds, the incumbent and others or it alone; `restart()` is the next.

    To be closed where `ahead` is above 1: that many restarts are prepared side by side, and stand still until they are
    timed one after the other.
    """

    setting: Setting
    workload: Workload
    builds: dict[str, Build]
    inputs: DrawInputs
    cores: Cores
    malloc: bool = True
    turns: bool = False  # one worker after the other, where the device has no room for all
    keep: Path | None = None  # where outputs of timed calls go, of all but the incumbent, to be checked afterwards
    outputs: list[TimedOutput] = field(default_factory=list)
    ahead: int = 1
    sizes: Sequence[OtherSize] = ()
    is_long: bool = False  # whether the next restart ends with `long_use.py`
    doing: Callable[[str], None] = lambda what: None  # shows what takes long
    rng: random.Random = field(default_factory=random.SystemRandom)
    _prepared: list[Group] = field(default_factory=list, init=False)

    def restart(self) -> Restart:
        """Raises: SideFault."""
        names = list(self._prepared[0].workers if self._prepared and not self.turns else self.builds)
        sides = {name: Side() for name in names}
        tripped: dict[str, set[str]] = {}
        together = [names]
        if self.turns:
            together = [[name] for name in self.rng.sample(names, len(names))]
        spent = [self._run(names, sides, tripped) for names in together]
        _check_tripped(tripped)
        return Restart(sides, sum(map(sum, spent)), sum(prepared_s for prepared_s, _ in spent))

    def close(self) -> None:
        """End what was prepared and not timed."""
        while self._prepared:
            self._prepared.pop().close()

    def _run(self, names: Sequence[str], sides: dict[str, Side], tripped: dict[str, set[str]]) -> tuple[float, float]:
        """Start these workers if they are not prepared, time them in turns, end them; how long each of both took."""
        try:
            if not self._prepared:
                self._prepare(names)
            begun, group = time.monotonic(), self._prepared[0]
            try:
                self._move(group)
                for case in range(len(self.workload.cases)):
                    self._time_case(case, group, sides)
                if self.is_long:
                    self._use_long(group, sides)
            finally:
                self.cores.free()
            for name, worker in group.workers.items():  # once nothing more of it is timed
                with _blamed(name):
                    worker.process.thaw()
                    tripped[name] = worker.tripped()
            self._prepared.pop(0).close()
            return group.prepared_s, time.monotonic() - begun
        except BaseException:
            self.close()
            raise

    def _move(self, group: Group) -> None:
        """To the cores that are quickest now, all of a restart to the same; they may have stood still for a minute."""
        self.cores = self.cores.quickest()
        for name, worker in group.workers.items():
            with _blamed(name):
                worker.process.pin(self.cores.timed)

    def _prepare(self, names: Sequence[str]) -> None:
        """Start, build, load and warm all up, side by side; then one state dict more, so that nothing baked in
        survives.
        """
        begun, groups = time.monotonic(), 1 if self.turns else self.ahead
        if groups > 1:
            self.doing(f"starting {groups * len(names)} workers side by side")
        for _ in range(groups):
            self._prepared.append(Group({}))
            for name in names:
                self._start(name)
        self._all("build", self._build_arguments, meanwhile=partial(self._draw, names))
        for which in ("a", "b") if self.workload.states else ("",):
            if which:
                self._all("load_state", partial(self._state_arguments, self.workload.states[which]))
            for case in range(len(self.workload.cases)):
                for _ in range(WARM_UP):
                    if any(group.next(name, case).is_sealed for group, name, _ in self._workers()):
                        self._all("load", partial(self._load_arguments, case=case))
                    self._all("stage", partial(self._stage_arguments, case=case))
                    for _, _, worker in self._workers():
                        worker.hide()
                    self._all("call", lambda *_: {"key": self._key()})
        self._all("collect", lambda *_: {})  # or the next full collection, due once after compiling, is timed
        for _, name, worker in self._workers():
            with _blamed(name):
                worker.process.freeze()
                worker.ready()
        for group in self._prepared:
            group.prepared_s = (time.monotonic() - begun) / len(self._prepared)

    def _start(self, name: str) -> None:
        """One more worker of the last group."""
        workers = self._prepared[-1].workers
        workers[name] = Worker(
            self.setting,
            self.builds[name],
            cpus=self.cores.starting[(len(workers) + len(self._prepared)) % 2],
            malloc=self.malloc,
            timeout_s=self.setting.check_timeout_s,
            in_all=True,
        )

    def _workers(self) -> Iterator[tuple[Group, str, Worker]]:
        """All that are prepared."""
        for group in self._prepared:
            for name, worker in group.workers.items():
                yield group, name, worker

    def _draw(self, names: Sequence[str]) -> None:
        """What all that are prepared will be given."""
        drawn = self.inputs([f"{number} {name}" for number in range(len(self._prepared)) for name in names])
        for number, group in enumerate(self._prepared):
            group.staged = {name: drawn[f"{number} {name}"] for name in names}
            group.cursor = {name: [0] * len(self.workload.cases) for name in names}

    def _all(
        self, op: str, arguments: Callable[[Group, str], dict[str, Any]], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        for group, name, worker in self._workers():
            with _blamed(name):
                worker.begin(op, **arguments(group, name))
        meanwhile()
        for _, name, worker in self._workers():
            with _blamed(name):
                worker.finish()

    def _build_arguments(self, group: Group, name: str) -> dict[str, Any]:
        worker = group.workers[name]
        return {**self.workload.build_arguments(worker), "compile_options": worker.build.compile_options}

    def _state_arguments(self, path: Path, group: Group, name: str) -> dict[str, Any]:
        return {"path": group.workers[name].reveal(path)}

    def _time_case(self, case: int, group: Group, sides: dict[str, Side]) -> None:
        plan = Plan.of(self.workload, self.workload.cases[case])
        for name in group.workers:
            sides[name].begin(case, plan.calls)
        # rounds are drawn independently: after a fixed number of samples a worker would know that no more will come
        chosen = {number for number in range(plan.rounds) if self.rng.random() < SAMPLES / plan.rounds}
        order = self.rng.sample(list(group.workers), len(group.workers))
        for number in range(plan.rounds):
            # ABBA with a random start, so that drift over the rounds counts for both alike
            for name in order if number % 2 == 0 else reversed(order):
                keep = self.rng.randrange(plan.calls) if number in chosen and name != INCUMBENT else None
                with _blamed(name):
                    self._block(case, plan, group, name, sides[name], keep)

    def _block(self, case: int, plan: Plan, group: Group, name: str, side: Side, keep: int | None) -> None:
        """Thaw one worker, time its calls, freeze it again."""
        worker = group.workers[name]
        worker.process.thaw()
        begun, before = time.perf_counter(), worker.process.usage()  # it may run while its usage is read
        for number in range(-plan.settle, plan.calls):
            # from when its input is staged a worker could begin: what is ours is done before it or after the call
            call = worker.prepared_call(self._key())
            loaded = 0
            if group.next(name, case).is_sealed:
                loaded = worker.took_ns("load", **self._load_arguments(group, name, case))
            staged = worker.took_ns("stage", **self._stage_arguments(group, name, case))
            said, elapsed = worker.timed_call(call)
            worker.hide()
            if number >= 0:
                side.call_ns[case].append(elapsed)
                side.stage_ns[case].append(staged)
                side.load_ns[case].append(loaded)
            if number == keep:
                self._keep(group, name, case, (call[0], said))
        after = worker.process.usage()
        wall = time.perf_counter() - begun
        worker.process.freeze()
        self._check_cores(before, after, wall)
        group.used_s[name] += after.cpu_time_s - before.cpu_time_s
        group.wall_s[name] += wall
        self._check_time_used(group.used_s[name], group.wall_s[name])  # finer than block by block

    def _use_long(self, group: Group, sides: dict[str, Side]) -> None:
        order, used = [*group.workers.items()], dict[str, LongUse]()
        for name, worker in order:
            with _blamed(name):
                started_s = worker.process.usage().cpu_time_s - group.used_s[name]
            sides[name].long_use = used[name] = LongUse(costs={"start_cpu_s": started_s})
        for turn in long_use.turns(self.workload):
            for name, worker in order:
                had = group.staged[name][0][: group.cursor[name][0]]
                with _running(name, worker):
                    long_use.call(used[name], worker, self.workload, had, turn, self._key)
            order.reverse()
        for name, worker in order:
            with _running(name, worker):
                long_use.look(used[name], worker, self.workload, self.sizes, self._key)

    def _check_cores(self, before: Any, after: Any, wall_s: float) -> None:
        allowed = frozenset(self.cores.timed)
        ours = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))  # inherited; the agent may run under nice
        for task in after.tasks:
            if not task.cpus <= allowed:
                raise Tripwire(f"a thread may run on CPUs {sorted(task.cpus)}, allowed are {sorted(allowed)}")
            if (task.nice, task.policy) != ours:
                raise Tripwire("a thread changed its priority")
        self._check_time_used(after.cpu_time_s - before.cpu_time_s, wall_s)

    def _check_time_used(self, used_s: float, wall_s: float) -> None:
        if used_s > wall_s * len(self.cores.timed) * 1.02 + CPU_SLACK_S:
            raise Tripwire(f"it used {used_s:.3f} s of CPU time in {wall_s:.3f} s on {len(self.cores.timed)} cores")

    def _load_arguments(self, group: Group, name: str, case: int) -> dict[str, Any]:
        """The next unused input of this worker, sealed."""
        return {"path": group.workers[name].reveal(group.next(name, case).path)}

    def _stage_arguments(self, group: Group, name: str, case: int) -> dict[str, Any]:
        """The next unused input of this worker. No two get the same: what one computes is of no use to another."""
        given, position = group.next(name, case), group.cursor[name][case]
        group.cursor[name][case] += 1
        shown = {"path": group.workers[name].reveal(given.path)} if not given.is_sealed else {"key": given.key}
        return {
            **shown,
            "how": "inplace" if (position * 2654435761) >> 8 & 1 else "fresh",
            "constants": list(self.workload.constants),
            "phase": self.workload.cases[case].phase,
        }

    def _keep(self, group: Group, name: str, case: int, commitment: tuple[int, str]) -> None:
        """Have the outputs of the last call written; only now does the worker learn that this call is looked at."""
        worker = group.workers[name]
        path = worker.saved(f"timed-{len(self.outputs)}")
        worker.ask("save", path=str(path))
        if self.keep is None:
            return
        kept = worker.take(path.name, self.keep / f"timed-{len(self.outputs)}")
        given = group.staged[name][case][group.cursor[name][case] - 1]
        source = replace(given, path=kept.with_suffix(".in"))  # outlives the restart
        os.link(given.path, source.path)
        self.outputs.append(TimedOutput(name, case, source, kept, commitment))

    def _key(self) -> int:
        return self.rng.randrange(-POSITIVE_63, POSITIVE_63)


def _check_tripped(tripped: dict[str, set[str]]) -> None:
    for name, found in tripped.items():
        if replaced := sorted(found - tripped[INCUMBENT]):
            raise SideFault(name, Tripwire(f"it replaces {replaced[0]}, which the incumbent does not"))


class SideFault(Exception):
    """A worker failed while it was timed; `side` names it."""

    def __init__(self, side: str, fault: WorkerFault | Tripwire) -> None:
        super().__init__(f"{side}: {fault}")
        self.side, self.fault = side, fault

    @property
    def may_be_chance(self) -> bool:
        return self.fault.may_be_chance


@contextmanager
def _running(name: str, worker: Worker) -> Iterator[None]:
    with _blamed(name):
        worker.process.thaw()
        yield
        worker.process.freeze()


@contextmanager
def _blamed(side: str) -> Iterator[None]:
    """What goes wrong in here is this side's doing."""
    try:
        yield
    except (WorkerFault, Tripwire) as fault:
        raise SideFault(side, fault) from fault
    except WouldNotFreeze as found:
        raise SideFault(side, DidNotHoldStill(str(found))) from found
