"""Which CPUs are timed on: the quickest ones, on one NUMA node, with nothing of ours on the rest of their cores."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tools.judging import cores
from tools.judging.cores import PROBED, Cores, of_one_node, siblings


@pytest.fixture(autouse=True)
def left_on(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Where the thread that asks was put; no CPU has a sibling."""
    put: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: put.append({*cpus}))
    monkeypatch.setattr(cores, "siblings", lambda cpu: frozenset({cpu}))
    return put


@pytest.mark.parametrize(
    ("available", "threads", "timed", "starting"),
    [
        (range(1), 1, (0,), ((0,), (0,))),
        (range(2), 1, (1,), ((1,), (0,))),
        (range(8), 1, (7,), ((4, 5, 6, 7), (0, 1, 2, 3))),
        (range(8), 3, (5, 6, 7), ((4, 5, 6, 7), (0, 1, 2, 3))),
        (range(2), 9, (1,), ((1,), (0,))),
    ],
)
def test_workers_start_on_half_the_cores_each_and_are_timed_on_one_for_each_thread(
    available: range, threads: int, timed: tuple[int, ...], starting: tuple[tuple[int, ...], ...]
) -> None:
    found = Cores.of(available, threads)
    assert (found.timed, found.starting, found.cpus) == (timed, starting, tuple(available))
    assert not set(found.timed) & set(found.host) or len(available) == 1


@pytest.mark.parametrize(
    ("threads", "slow", "timed"),
    [
        (1, {}, (7,)),
        (1, {7: 2.0, 6: 1.5}, (5,)),
        (1, dict.fromkeys(range(1, 8), 2.0), (0,)),
        (3, {6: 2.0}, (3, 4, 5)),
        (3, {4: 1.2, 1: 2.0, 6: 3.0}, (3, 4, 5)),  # the slowest of those timed on counts
        (7, {7: 2.0}, (0, 1, 2, 3, 4, 5, 6)),
        (1, {7: math.inf}, (6,)),
    ],
)
def test_what_is_timed_on_is_the_quickest_now(
    threads: int, slow: dict[int, float], timed: tuple[int, ...], left_on: list[set[int]]
) -> None:
    found = Cores.of(range(8), threads).quickest(lambda cpu: slow.get(cpu, 1.0))
    assert (found.timed, found.cpus) == (timed, tuple(range(8)))
    assert {*found.host} == set(range(8)) - {*timed}
    (polling,) = left_on
    assert len(polling) == 1 and slow.get(min(polling), 1.0) == min(slow.get(cpu, 1.0) for cpu in found.host)


def test_after_a_restart_the_thread_that_asked_is_free_again(left_on: list[set[int]]) -> None:
    Cores.of(range(8), 1).free()
    Cores.of(range(40), 40).quickest(lambda cpu: 1.0)
    assert left_on == [set(range(7)), {0}]


def test_it_changes_with_what_is_quick() -> None:
    found = Cores.of(range(4), 1).quickest(lambda cpu: cpu)
    assert found.timed == (0,)
    assert found.quickest(lambda cpu: -cpu).timed == (3,)


@pytest.mark.parametrize(("threads", "asked"), [(1, PROBED), (PROBED + 8, 0)])
def test_no_more_cpus_are_tried_than_takes_no_time(threads: int, asked: int) -> None:
    tried: set[int] = set()

    def seconds_on(cpu: int) -> float:
        tried.add(cpu)
        return 1.0

    found = Cores.of(range(256), threads)
    assert found.quickest(seconds_on) == found
    assert len(tried) == asked


def test_a_cpu_that_is_not_ours_any_more_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(pid: int, cpus: set[int]) -> None:
        if {*cpus} == {7}:
            raise OSError

    monkeypatch.setattr(os, "sched_setaffinity", put)
    assert 7 not in Cores.of(range(8), 1).quickest().timed


def test_the_host_polls_on_no_other_half_of_a_core_that_is_timed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "siblings", lambda cpu: frozenset({cpu % 4, cpu % 4 + 4}))
    assert Cores.of(range(8), 1).host == (0, 1, 2, 4, 5, 6)
    assert Cores.of(range(8), 4).host == (0, 1, 2, 3)  # nothing else is left
    assert Cores.of((3, 7), 1).host == (3,)


def machine(root: Path, nodes: dict[int, str], device: str | None = None) -> Path:
    """`sys` of a machine with these CPUs at its nodes, and a device at these."""
    for number, cpus in nodes.items():
        folder = root / f"devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    if device is not None:
        folder = root / "bus/pci/devices/0000:c1:00.0"
        folder.mkdir(parents=True)
        (folder / "local_cpulist").write_text(device + "\n")
    return root


def test_workers_stay_on_the_node_that_the_gpu_is_at(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: "0-3,8-11", 1: "4-7,12-15"}, "0-3,8-11")
    assert of_one_node(range(16), 1, "0000:c1:00.0", root) == {0, 1, 2, 3, 8, 9, 10, 11}
    assert of_one_node(range(2, 16), 1, "0000:c1:00.0", root) == {2, 3, 8, 9, 10, 11}
    assert of_one_node((4, 5, 6), 1, "0000:c1:00.0", root) == (4, 5, 6)
    assert of_one_node((3, 4, 5, 6), 1, "0000:c1:00.0", root) == (3, 4, 5, 6)  # no room beside the one that is timed


def test_without_one_they_stay_on_the_node_with_most_of_our_cpus(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: "0-3", 1: "4-7"})
    assert of_one_node((2, 3, 4, 5, 6), 1, None, root) == {4, 5, 6}
    assert of_one_node((2, 3, 4, 5, 6), 3, None, root) == (2, 3, 4, 5, 6)


@pytest.mark.parametrize("told", ["", "garbled", "-1", "1-", "0-x"])
def test_a_machine_that_does_not_tell_is_taken_as_one_node(tmp_path: Path, told: str) -> None:
    assert of_one_node(range(4), 1, "0000:c1:00.0", machine(tmp_path, {0: told}, told)) == range(4)
    assert of_one_node(range(4), 1, "0000:ff:00.0", tmp_path) == range(4)


def test_siblings_are_what_the_kernel_tells(tmp_path: Path) -> None:
    folder = tmp_path / "devices/system/cpu/cpu3/topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text("3,99\n")
    assert siblings(3, tmp_path) == {3, 99}
    assert siblings(4, tmp_path) == {4}
