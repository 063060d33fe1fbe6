"""How a restart goes: nobody can foresee which timed calls are looked at; who has no room beside others runs alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tools.judging import clock
from tools.judging.clock import SAMPLES, Group, Plan, Session, SideFault
from tools.judging.cores import Cores
from tools.judging.held import Held
from tools.judging.inputs import Input
from tools.judging.measure import LiveClock, Request
from tools.judging.timings import Restart, Side
from tools.judging.worker import WorkerFault
from tools.judging.workload import Case


class TwoNames:
    """As much of a workload and of a session as choosing calls needs."""

    device = "cpu"
    cases = (Case("", {}, call_s=0.01),)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """For each of 300 restarts, the block and the call that were looked at."""
    restarts: list[list[tuple[int, int]]] = []
    blocks: list[tuple[str, int | None]] = []

    def block(self: Session, case: int, calls: int, group: Any, name: str, side: Side, keep: int | None) -> None:
        blocks.append((name, keep))

    monkeypatch.setattr(Session, "_block", block)
    unused: Any = None
    session = Session(unused, unused, {}, unused, unused)
    session.workload = TwoNames()  # type: ignore[assignment]
    for _ in range(300):
        blocks.clear()
        group = Group({"incumbent": unused, "candidate": unused})
        session._time_case(0, group, {"incumbent": Side(), "candidate": Side()})
        assert all(keep is None for name, keep in blocks if name == "incumbent")
        of_candidate = [keep for name, keep in blocks if name == "candidate"]
        restarts.append([(block, keep) for block, keep in enumerate(of_candidate) if keep is not None])
    return restarts


@pytest.mark.guard("nothing to lose")
def test_their_number_varies_so_that_none_is_the_last(sampled: list[list[tuple[int, int]]]) -> None:
    counts = [len(calls) for calls in sampled]
    assert len(set(counts)) > 3
    assert SAMPLES / 2 < sum(counts) / len(counts) < SAMPLES * 2


def test_every_block_and_every_call_may_be_looked_at(sampled: list[list[tuple[int, int]]]) -> None:
    plan = Plan.for_case(TwoNames.cases[0], TwoNames.device)
    blocks, calls = zip(*(call for restart in sampled for call in restart), strict=True)
    assert set(blocks) == set(range(plan.rounds))
    assert set(calls) == set(range(plan.calls))


def test_large_inputs_get_fewer_calls_and_then_fewer_rounds_but_each_call_its_own() -> None:
    def plan(input_bytes: int) -> Plan:
        return Plan.for_case(Case("", {}, call_s=0.001, input_bytes=input_bytes), "cuda")

    small, middling, large, huge = (plan(n) for n in (1 << 20, 20 << 20, 128 << 20, 16 << 30))
    assert (small.rounds, small.calls) == (clock.ROUNDS, clock.MAX_CALLS)
    assert middling.rounds == clock.ROUNDS and 1 < middling.calls < small.calls
    assert middling.rounds * middling.calls * (20 << 20) <= clock.INPUT_BYTES
    assert large == huge == Plan(clock.ROUNDS // 2, 1)


def test_workers_run_one_after_the_other_where_the_device_has_no_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(
        self: Session, names: list[str], sides: dict[str, Side], tripped: dict[str, set[str]]
    ) -> tuple[float, float]:
        ran.append(list(names))
        tripped.update({name: set() for name in names})
        return 1.0, 2.0

    monkeypatch.setattr(Session, "_run", run)
    unused: Any = None
    builds = {"incumbent": unused, "candidate": unused}
    Session(unused, unused, builds, unused, unused).restart()
    Session(unused, unused, builds, unused, unused, turns=True).restart()
    assert ran[0] == ["incumbent", "candidate"]
    assert sorted(ran[1:]) == [["candidate"], ["incumbent"]]


class Standing:
    """As much of a worker as a session needs, and what became of it."""

    log: ClassVar[list[str]] = []
    count = 0

    def __init__(self, setting: object, build: object, **_: object) -> None:
        Standing.count += 1
        self.build, self.process, self.number = build, self, Standing.count
        self.asked: list[str] = []
        self.told: list[tuple[str, dict[str, object]]] = []
        self.pinned: list[tuple[object, ...]] = []
        self.log.append(f"start {self.number}")

    def __getattr__(self, name: str) -> Any:
        def called(*arguments: object, **given: object) -> Any:
            if name == "begin":
                self.asked.append(str(arguments[0]))
                self.told.append((self.asked[-1], given))
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

    def time_case(self: Session, case: int, group: Group, sides: dict[str, Side]) -> None:
        Standing.log.append(f"time {[worker.number for worker in group.workers.values()]}")  # type: ignore[attr-defined]

    monkeypatch.setattr(Session, "_time_case", time_case)
    quick = iter(range(100))
    monkeypatch.setattr(Cores, "quickest", lambda self: Cores(self.cpus, (next(quick),)))
    monkeypatch.setattr(Cores, "free", lambda self: None)
    unused: Any = SimpleNamespace(check_timeout_s=1.0)
    workload: Any = SimpleNamespace(cases=[Case("", {})], states={}, constants=(), build_arguments=lambda worker: {})
    build: Any = SimpleNamespace(compile_options=None)
    inputs = [[Input(Path("unused"), None)] * 3]
    builds = {"incumbent": build, "candidate": build}
    return Session(unused, workload, builds, lambda names: dict.fromkeys(names, inputs), Cores.of(range(8), 1), ahead=2)


def test_restarts_are_prepared_side_by_side_and_timed_one_after_the_other(prepared: Session) -> None:
    for _ in range(3):
        prepared.restart()
    prepared.close()
    began = [*(f"start {number}" for number in range(1, 5)), *(f"freeze {number}" for number in range(1, 5))]
    assert Standing.log == [
        *began,
        "time [1, 2]",
        "thaw 1",
        "thaw 2",
        "close 1",
        "close 2",
        "time [3, 4]",
        "thaw 3",
        "thaw 4",
        "close 3",
        "close 4",
        *(line.replace(line[-1], str(int(line[-1]) + 4)) for line in began),
        "time [5, 6]",
        "thaw 5",
        "thaw 6",
        "close 5",
        "close 6",
        "close 7",
        "close 8",
    ]


def test_each_restart_is_timed_where_it_is_quickest_then_all_of_it_on_the_same_cores(prepared: Session) -> None:
    pinned: list[list[Any]] = []

    def time_case(self: Session, case: int, group: Group, sides: dict[str, Side]) -> None:
        pinned.append([worker.pinned for worker in group.workers.values()])  # type: ignore[attr-defined]
        assert pinned[-1] == [[(self.cores.timed,)]] * 2

    prepared._time_case = time_case.__get__(prepared)  # type: ignore[method-assign]
    for _ in range(3):
        prepared.restart()
    prepared.close()
    assert [both[0] for both in pinned] == [[((number,),)] for number in range(3)]


def test_the_host_is_put_on_one_cpu_for_the_timing_alone(prepared: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cores, "free", lambda self: Standing.log.append("free"))
    prepared.restart()
    after = Standing.log.index("time [1, 2]")
    assert Standing.log[after : after + 3] == ["time [1, 2]", "free", "thaw 1"]

    def fails(*_: object) -> None:
        raise SideFault("candidate", WorkerFault("died", "it ended"))

    monkeypatch.setattr(Session, "_time_case", fails)
    Standing.log.clear()
    with pytest.raises(SideFault):
        prepared.restart()
    assert Standing.log[0] == "free"


def test_what_takes_long_is_told(prepared: Session) -> None:
    told: list[str] = []
    prepared.doing = told.append
    found = [prepared.restart() for _ in range(2)]
    assert told == ["starting 4 workers side by side"]
    assert all(0 < restart.prepared_s < restart.wall_s for restart in found)


def test_garbage_of_warming_up_is_collected_before_anything_is_timed(prepared: Session) -> None:
    asked: list[str] = []

    def time_case(self: Session, case: int, group: Group, sides: dict[str, Side]) -> None:
        asked.extend(group.workers["candidate"].asked)  # type: ignore[attr-defined]

    prepared._time_case = time_case.__get__(prepared)  # type: ignore[method-assign]
    prepared.restart()
    prepared.close()
    assert asked == ["build", *["stage", "call"] * clock.WARM_UP, "collect"]


def test_large_inputs_are_loaded_before_they_are_opened(prepared: Session) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    prepared.inputs = lambda names: {name: [[Input(Path("unused"), 7)] * 3] for name in names}

    def time_case(self: Session, case: int, group: Group, sides: dict[str, Side]) -> None:
        told.extend(group.workers["candidate"].told)  # type: ignore[attr-defined]

    prepared._time_case = time_case.__get__(prepared)  # type: ignore[method-assign]
    prepared.restart()
    prepared.close()
    shown = [(op, "path" in given, given.get("key")) for op, given in told if op in ("load", "stage")]
    assert shown == [("load", True, None), ("stage", False, 7)] * clock.WARM_UP


def test_a_fault_ends_all_that_was_prepared(prepared: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise SideFault("candidate", WorkerFault("died", "it ended"))

    monkeypatch.setattr(Session, "_time_case", fails)
    with pytest.raises(SideFault):
        prepared.restart()
    assert sorted(line for line in Standing.log if line.startswith("close")) == [f"close {n}" for n in range(1, 5)]


def test_all_timed_calls_together_count_with_what_their_staging_takes_longer() -> None:
    def total(candidate: Side) -> float:
        sides = {"incumbent": Side({0: [100] * 8}, {0: [100] * 8}), "side": candidate}
        (found,) = Restart(sides, 1.0).total_log_ratios("side")
        return found

    assert total(Side({0: [80] * 8}, {0: [100] * 8})) == pytest.approx(math.log(1.25))
    moved = Side({0: [80] * 8}, {0: [100] * 6 + [180] * 2})  # where a median does not see it
    assert total(moved) == pytest.approx(math.log(800 / (640 + 960 - 1.03 * 800)))
    assert total(Side({0: [100] * 8}, {0: [10] * 8})) == 0.0


def test_what_loading_takes_longer_counts_beyond_what_it_differs_by_itself() -> None:
    def both(load_ns: list[int]) -> tuple[float, float]:
        sides = {
            "incumbent": Side({0: [100] * 4}, {0: [9] * 4}, {0: [400] * 4}),
            "side": Side({0: [80] * 4}, {0: [9] * 4}, {0: load_ns}),
        }
        restart = Restart(sides, 1.0)
        return restart.log_ratios("side")[0], restart.total_log_ratios("side")[0]

    assert both([580] * 4) == pytest.approx([math.log(1.25)] * 2)
    assert both([620] * 4) == pytest.approx([math.log(1.0)] * 2)
    assert both([400, 400, 400, 1400]) == pytest.approx([math.log(1.25), math.log(400 / (320 + 2600 - 2400))])


def live_clock(input_bytes: int = 1 << 20, cores: int = 32) -> LiveClock:
    unused: Any = None
    cases = (Case("", {}, call_s=0.01, input_bytes=input_bytes),)
    workload: Any = SimpleNamespace(device="cuda", cases=cases, states={"a": unused, "b": unused}, fits=lambda n: True)
    return LiveClock(unused, workload, Cores.of(range(cores), 1), unused, unused, unused)


def request(fewest: int, to_come: int = 0) -> Request:
    build: Any = SimpleNamespace(key="")
    return Request("", build, {"candidate": build}, bool, fewest=fewest, to_come=to_come)


@pytest.mark.parametrize(("input_bytes", "ahead"), [(1 << 20, 6), (32 << 20, 2), (128 << 20, 2), (512 << 20, 1)])
def test_as_many_restarts_are_prepared_as_their_inputs_have_room(input_bytes: int, ahead: int) -> None:
    assert live_clock(input_bytes)._ahead(2, request(fewest=12), 0) == ahead


@pytest.mark.parametrize(
    ("asked", "done", "cores", "ahead"),
    [
        (request(3, to_come=6), 0, 16, 7),  # one settles the screen, six confirm
        (request(3, to_come=6), 0, 12, 7),  # more workers than cores start side by side, a quarter more at most
        (request(3, to_come=6), 0, 10, 6),
        (request(3, to_come=6), 0, 8, 3),
        (request(6), 0, 16, 6),
        (request(6), 4, 16, 2),  # what the screen left of seven is timed
        (request(6), 6, 16, 6),  # the next look
    ],
)
def test_no_more_are_prepared_than_will_be_timed(asked: Request, done: int, cores: int, ahead: int) -> None:
    assert live_clock(cores=cores)._ahead(2, asked, done) == ahead


def test_what_a_screen_has_not_timed_serves_the_confirmation_and_nothing_else(prepared: Session) -> None:
    prepared.ahead = 3
    held = Held()
    prepared.restart()
    held.take(prepared, prepared.hand_over())
    confirming = replace(prepared, ahead=1)
    confirming.take_over(held.give(prepared))
    confirming.restart()
    assert [line for line in Standing.log if line.startswith("time")] == ["time [1, 2]", "time [3, 4]"]
    held.take(prepared, confirming.hand_over())
    others = replace(prepared, builds={**prepared.builds, "candidate": SimpleNamespace(compile_options=None, key="2")})  # type: ignore[dict-item]
    assert held.give(others) == []
    assert Standing.log[-2:] == ["close 5", "close 6"]
    prepared.close()
    confirming.close()
    assert sum(line.startswith("close") for line in Standing.log) == 6


def test_nothing_of_ours_lies_between_the_staging_of_an_input_and_its_call(prepared: Session) -> None:
    """A worker is awake then, with its input, and its clock does not run."""
    done: list[str] = []

    class Noting(Standing):
        def __getattr__(self, name: str) -> Any:
            def noted(*arguments: Any, **given: Any) -> Any:
                done.append(str(arguments[0]) if name == "ask" else name)
                said: dict[str, Any] = {"timed_call": ("digest", 1), "prepared_call": (7, "", b"")}
                return said.get(name, SimpleNamespace(tasks=(), cpu_time_s=0.0))

            return noted

    inputs = [[Input(Path("unused"), None)] * 3]
    group = Group({"candidate": Noting(None, None)}, {"candidate": inputs})  # type: ignore[dict-item]
    group.cursor = {"candidate": [0]}
    side = Side()
    side.begin(0)
    prepared._block(0, 1, group, "candidate", side, None)
    one = ["prepared_call", "reveal", "stage", "timed_call", "hide"]
    assert done == ["thaw", "usage", *one, *one, "usage", "freeze"]
