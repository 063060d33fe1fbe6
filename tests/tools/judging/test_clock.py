"""How a restart goes: nobody can foresee which timed calls are looked at; who has no room beside others runs alone."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from sandbox.contract import Limits
from tools.judging import clock
from tools.judging.clock import Group, Session, SideFault, Tripwire
from tools.judging.comparison import Restart, Side
from tools.judging.cores import Cores
from tools.judging.inputs import Input
from tools.judging.measure import ComparisonRequest, LiveClock
from tools.judging.plan import INPUT_BYTES, SAMPLES, TURNS, WARM_UP, Plan
from tools.judging.script import Case
from tools.judging.worker import Build, WorkerFault

UNUSED: Any = None


ONE_CASE: Any = SimpleNamespace(device="cpu", cases=(Case("", {}, call_s=0.01),))


@pytest.mark.guard("nothing to lose")
def test_their_number_varies_so_that_none_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block and every call may be looked at."""
    blocks: list[tuple[str, int | None]] = []
    counts, seen = list[int](), set[tuple[int, int]]()
    monkeypatch.setattr(
        Session, "_block", lambda self, case, plan, group, name, side, keep: blocks.append((name, keep))
    )
    session = Session(UNUSED, ONE_CASE, {}, UNUSED, UNUSED)
    for _ in range(300):
        blocks.clear()
        session._time_case(
            0, Group({"incumbent": UNUSED, "candidate": UNUSED}), {"incumbent": Side(), "candidate": Side()}
        )
        assert all(keep is None for name, keep in blocks if name == "incumbent")
        kept = [keep for name, keep in blocks if name == "candidate"]
        looked_at = {(block, keep) for block, keep in enumerate(kept) if keep is not None}
        counts.append(len(looked_at))
        seen |= looked_at
    assert len(set(counts)) > 3 and SAMPLES / 2 < sum(counts) / len(counts) < SAMPLES * 2
    plan = Plan.of(ONE_CASE, ONE_CASE.cases[0])
    assert [{*each} for each in zip(*seen, strict=True)] == [set(range(plan.rounds)), set(range(plan.calls))]


def test_large_inputs_get_fewer_calls_and_then_fewer_rounds_but_each_call_its_own() -> None:
    def plan(input_bytes: int, cases: int = 1) -> Plan:
        case = Case("", {}, call_s=0.001, input_bytes=input_bytes)
        workload: Any = SimpleNamespace(device="cuda", cases=(case,) * cases)
        return Plan.of(workload, case)

    small, middling, large, huge = (plan(n) for n in (1 << 20, 20 << 20, 128 << 20, 16 << 30))
    turns = TURNS["cuda"]
    assert (small.rounds, small.calls) == (turns.rounds, turns.calls)
    assert middling.rounds == turns.rounds and 1 < middling.calls < small.calls
    assert middling.rounds * middling.calls * (20 << 20) <= INPUT_BYTES
    assert large == huge == Plan(turns.fewest // 2, 1)
    assert [plan(1 << 20, cases).rounds for cases in (2, 3)] == [turns.rounds, turns.rounds // 2]


@pytest.mark.parametrize(
    ("call_s", "input_bytes", "wanted"),
    [
        (0.0001, 1 << 10, Plan(40, 5)),
        (0.004, 1 << 10, Plan(40, 4)),
        (0.01, 1 << 10, Plan(35, 2)),
        (0.03, 1 << 10, Plan(23, 1)),
        (0.004, 20 << 20, Plan(25, 2)),  # of 51 inputs
        (0.004, 60 << 20, Plan(10, 1)),
    ],
)
def test_turns_are_short_on_a_cpu_and_many(call_s: float, input_bytes: int, wanted: Plan) -> None:
    case = Case("", {}, call_s=call_s, input_bytes=input_bytes)
    workload: Any = SimpleNamespace(device="cpu", cases=(case,))
    assert Plan.of(workload, case) == wanted


@pytest.mark.parametrize(("device", "call_s"), [("cpu", 0.1), ("cuda", 0.05)])
def test_long_calls_get_fewer_rounds_and_need_not_settle(device: str, call_s: float) -> None:
    fewest = TURNS[device].fewest
    for each, wanted in ((0.9 * call_s, Plan(fewest, 1, 1)), (call_s, Plan(fewest // 2, 1, 0))):
        case = Case("", {}, call_s=each, input_bytes=1 << 10)
        workload: Any = SimpleNamespace(device=device, cases=(case,))
        assert Plan.of(workload, case) == wanted


def test_workers_run_one_after_the_other_where_the_device_has_no_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(self: Session, names: list[str], sides: object, tripped: dict[str, set[str]]) -> tuple[float, float]:
        ran.append(list(names))
        tripped.update({name: set() for name in names})
        return 1.0, 2.0

    monkeypatch.setattr(Session, "_run", run)
    builds = {"incumbent": UNUSED, "candidate": UNUSED}
    for turns in (False, True):
        Session(UNUSED, UNUSED, builds, UNUSED, UNUSED, turns=turns).restart()
    assert ran[0] == ["incumbent", "candidate"] and sorted(ran[1:]) == [["candidate"], ["incumbent"]]


class Standing:
    """As much of a worker as a session needs, and what became of it."""

    log: ClassVar[list[str]] = []
    count = 0

    def __init__(self, setting: object, build: object, **_: object) -> None:
        Standing.count += 1
        self.build, self.process, self.number = build, self, Standing.count
        self.told: list[tuple[str, dict[str, object]]] = []
        self.pinned: list[tuple[object, ...]] = []
        self.log.append(f"start {self.number}")

    def __getattr__(self, name: str) -> Any:
        def called(*arguments: object, **given: object) -> Any:
            if name == "begin":
                self.told.append((str(arguments[0]), given))
            if name in ("freeze", "thaw", "close"):
                self.log.append(f"{name} {self.number}")
            if name == "pin":
                self.pinned += [arguments]
            return set() if name == "tripped" else {}

        return called


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session of which two restarts are prepared side by side; what its workers do is in `Standing.log`."""
    monkeypatch.setattr(Standing, "log", [])
    monkeypatch.setattr(Standing, "count", 0)
    monkeypatch.setattr(clock, "Worker", Standing)

    def look(self: Session, workers: list[Any]) -> None:
        Standing.log.append(f"time {[worker.number for worker in workers]} on CPU {self.cores.timed[0]}")
        assert all(worker.pinned == [(self.cores.timed,)] for worker in workers), "all of a restart on the same cores"

    timed(monkeypatch, look)
    quick = iter(range(100))
    monkeypatch.setattr(Cores, "quickest", lambda self: Cores(self.cpus, (next(quick),)))
    monkeypatch.setattr(Cores, "free", lambda self: None)
    unused: Any = SimpleNamespace(check_timeout_s=1.0)
    workload: Any = SimpleNamespace(cases=[Case("", {})], states={}, constants=(), build_arguments=lambda worker: {})
    build: Any = SimpleNamespace(compile_options=None)
    inputs = [[Input(Path("unused"), None)] * 3]
    builds = {"incumbent": build, "candidate": build}
    return Session(unused, workload, builds, lambda names: dict.fromkeys(names, inputs), Cores.of(range(8), 1), ahead=2)


def timed(monkeypatch: pytest.MonkeyPatch, look: Callable[[Session, list[Any]], object]) -> None:
    """In the place of timing, a look at the workers whose turn it is."""
    monkeypatch.setattr(Session, "_time_case", lambda self, case, group, sides: look(self, [*group.workers.values()]))


def test_a_side_that_has_enough_is_in_no_restart_that_is_prepared_from_then_on(prepared: Session) -> None:
    for sides in (["incumbent", "candidate"], ["incumbent", "candidate"], ["incumbent"]):
        assert [*prepared.restart().sides] == sides, "what stands ready is timed"
        prepared.builds = {"incumbent": prepared.builds["incumbent"]}
    prepared.close()


def test_others_go_on_without_a_side_that_has_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    timed = list[list[str]]()

    def restart(self: Session) -> Restart:
        timed.append([*self.builds])
        return Restart({name: Side({0: [1000]}, {0: [0]}) for name in self.builds}, 2.0)

    monkeypatch.setattr(Session, "restart", restart)
    workload: Any = SimpleNamespace(device="cuda", cases=(), fits=lambda sides: True)
    supply: Any = SimpleNamespace(opened=contextlib.nullcontext)
    live = LiveClock(UNUSED, workload, Cores.of(os.sched_getaffinity(0), 1), tmp_path, supply, lambda: None)
    builds = {name: Build(name, tmp_path, compile_options={}) for name in ("incumbent", "first", "second")}
    enough = {"first": 1, "second": 3}
    found = live.compare(
        ComparisonRequest(
            "", builds.pop("incumbent"), builds, lambda seen: len(seen.log_ratios) >= enough[seen.candidate]
        )
    )
    assert timed == [["incumbent", "first", "second"], ["incumbent", "second"], ["incumbent", "second"]]
    assert [(len(each.log_ratios), each.wall_s) for each in found.comparisons.values()] == [(1, 2.0), (3, 6.0)]


def fails(*_: object) -> None:
    raise SideFault("candidate", WorkerFault("died", "it ended"))


def test_restarts_are_prepared_side_by_side_and_timed_one_by_one_where_it_is_quickest(prepared: Session) -> None:
    told: list[str] = []
    prepared.doing = told.append
    found = [prepared.restart() for _ in range(2)]
    assert told == ["starting 4 workers side by side"]
    assert all(0 < restart.prepared_s < restart.wall_s for restart in found)
    prepared.restart()
    prepared.close()

    def began(numbers: range) -> list[str]:
        return [f"{what} {number}" for what in ("start", "freeze") for number in numbers]

    def one(*pair: int) -> list[str]:
        return [
            f"time {[*pair]} on CPU {pair[0] // 2}",
            *(f"{what} {number}" for what in ("thaw", "close") for number in pair),
        ]

    rest = ["close 7", "close 8"]
    assert Standing.log == [*began(range(1, 5)), *one(1, 2), *one(3, 4), *began(range(5, 9)), *one(5, 6), *rest]


def test_the_host_is_freed_and_a_fault_ends_all_workers(prepared: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cores, "free", lambda self: Standing.log.append("free"))
    prepared.restart()
    assert Standing.log[-6:-3] == ["time [1, 2] on CPU 0", "free", "thaw 1"]
    monkeypatch.setattr(Session, "_time_case", fails)
    Standing.log.clear()
    with pytest.raises(SideFault):
        prepared.restart()
    assert Standing.log == ["free", "close 3", "close 4"]


@pytest.mark.parametrize("key", [None, 7])
def test_a_worker_is_warmed_up_first(key: int | None, prepared: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    timed(monkeypatch, lambda self, workers: told.extend(workers[1].told))
    prepared.inputs = lambda names: {name: [[Input(Path("unused"), key)] * 3] for name in names}
    prepared.restart()
    prepared.close()
    one = ["stage", "call"] if key is None else ["load", "stage", "call"]
    assert [op for op, _ in told] == ["build", *one * WARM_UP, "collect"]
    shown = {(op, "path" in given, given.get("key")) for op, given in told if op in ("load", "stage")}
    assert shown == ({("stage", True, None)} if key is None else {("load", True, None), ("stage", False, 7)})


def ahead(
    request: ComparisonRequest, done: int = 0, cores: int = 32, input_bytes: int = 1 << 20, memory_bytes: int = 0
) -> int:
    """How many restarts are prepared side by side; on a CPU, where this much memory is given."""
    cases = (Case("", {}, call_s=0.01, input_bytes=input_bytes),)
    workload: Any = SimpleNamespace(cases=cases, states={"a": UNUSED, "b": UNUSED}, fits=lambda n: True)
    workload.device, workload.peak_bytes = "cpu" if memory_bytes else "cuda", 1 << 30
    setting: Any = SimpleNamespace(limits=Limits(memory_bytes))
    return LiveClock(setting, workload, Cores.of(range(cores), 1), UNUSED, UNUSED, UNUSED)._ahead(2, request, done)


def request(fewest: int) -> ComparisonRequest:
    build: Any = SimpleNamespace(key="")
    return ComparisonRequest("", build, {"candidate": build}, bool, fewest=fewest)


@pytest.mark.parametrize(
    ("asked", "done", "cores", "wanted"),
    [
        (request(3), 0, 16, 3),
        (request(3), 3, 16, 3),  # the next look
        (request(3), 6, 16, 6),
        (request(3), 12, 16, 6),
        (request(6), 0, 10, 6),  # more workers than cores start side by side, a quarter more at most
        (request(6), 0, 8, 3),
        (request(6), 3, 8, 3),
        (request(6), 6, 16, 6),
    ],
)
def test_no_more_are_prepared_than_needed(asked: ComparisonRequest, done: int, cores: int, wanted: int) -> None:
    assert ahead(asked, done, cores) == wanted
    by_bytes = {1 << 20: 6, 32 << 20: 2, 128 << 20: 2, 512 << 20: 1}
    assert [ahead(request(fewest=12), input_bytes=each) for each in by_bytes] == [*by_bytes.values()]


def test_on_a_cpu_as_many_start_as_its_cores_and_memory_have_room_for() -> None:
    """Of two workers each, which take 2 GiB: one of the model and one of its compiler."""
    by_cores = [(1, 1), (2, 3), (4, 6)]
    by_memory = [(1 << 30, 1), (8 << 30, 2), (12 << 30, 3), (32 << 30, 6)]
    assert [ahead(request(6), cores=each, memory_bytes=1 << 40) for each, _ in by_cores] == [n for _, n in by_cores]
    assert [ahead(request(6), memory_bytes=each) for each, _ in by_memory] == [n for _, n in by_memory]


def test_nothing_of_ours_lies_between_the_staging_of_an_input_and_its_call(prepared: Session) -> None:
    """A worker is awake then, with its input, and its clock does not run."""
    done: list[str] = []

    class Noting(Standing):
        def __getattr__(self, name: str) -> Any:
            def noted(*arguments: Any, **given: Any) -> Any:
                done.append(str(arguments[0]) if name == "took_ns" else name)
                said: dict[str, Any] = {"timed_call": ("digest", 1), "prepared_call": (7, "", b"")}
                return said.get(name, SimpleNamespace(tasks=(), cpu_time_s=0.0))

            return noted

    inputs = [[Input(Path("unused"), None)] * 3]
    group = Group({"candidate": Noting(None, None)}, {"candidate": inputs})  # type: ignore[dict-item]
    group.cursor = {"candidate": [0]}
    side = Side()
    side.begin(0, 1)
    prepared._block(0, Plan(1, 1), group, "candidate", side, None)
    one = ["prepared_call", "reveal", "stage", "timed_call", "hide"]
    assert done == ["thaw", "usage", *one, *one, "usage", "freeze"]


def test_what_runs_while_its_usage_is_read_ran_on_the_clock(prepared: Session) -> None:
    """Of a tree with many threads that takes a while, and longer on a busy machine."""
    used, takes_s = iter([0.0, 0.2]), iter([0.2, 0.0])

    class Busy(Standing):
        def usage(self) -> Any:
            found = SimpleNamespace(tasks=(), cpu_time_s=next(used))
            time.sleep(next(takes_s))
            return found

        def prepared_call(self, key: int) -> tuple[int, str, bytes]:
            return key, "", b""

        def timed_call(self, *_: object) -> tuple[str, int]:
            return "digest", 1

    group = Group({"candidate": Busy(None, None)}, {"candidate": [[Input(Path("unused"), None)] * 3]})  # type: ignore[dict-item]
    group.cursor = {"candidate": [0]}
    side = Side()
    side.begin(0, 1)
    prepared._block(0, Plan(1, 1), group, "candidate", side, None)
    assert group.used_s["candidate"] == 0.2


@pytest.mark.parametrize(
    ("task", "cpu_time_s", "why"),
    [
        ({}, 1.0, ""),
        ({"nice": 0}, 1.0, "a thread changed its priority"),
        ({"policy": 1}, 1.0, "a thread changed its priority"),
        ({"cpus": frozenset({0, 1})}, 1.0, "a thread may run on CPUs"),
        ({}, 1.1, "it used 1.100 s of CPU time in 1.000 s on 1 cores"),
    ],
)
def test_a_worker_runs_on_the_cores_and_at_the_priority_that_it_was_given(
    task: dict[str, Any], cpu_time_s: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent may run at any niceness; what counts is that no worker changes it."""
    monkeypatch.setattr(os, "getpriority", lambda which, who: 10)
    session = Session(UNUSED, UNUSED, {}, UNUSED, Cores((0, 1), (1,)))
    ours = {"cpus": frozenset({1}), "nice": 10, "policy": os.sched_getscheduler(0)}
    after = SimpleNamespace(cpu_time_s=cpu_time_s, tasks=[SimpleNamespace(**{**ours, **task})])
    try:
        session._check_cores(SimpleNamespace(cpu_time_s=0.0), after, 1.0)
        found = ""
    except Tripwire as tripped:
        found = str(tripped)
    assert found.startswith(why) and bool(found) is bool(why)
