"""Which CPUs are timed on: the quickest ones, on one NUMA node, with nothing of ours on the rest of their cores."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.files import write_files
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


def test_it_changes_with_what_is_quick_and_the_thread_that_asked_is_free_again(left_on: list[set[int]]) -> None:
    found = Cores.of(range(4), 1).quickest(lambda cpu: cpu)
    assert found.timed == (0,) and found.quickest(lambda cpu: -cpu).timed == (3,)
    left_on.clear()
    Cores.of(range(8), 1).free()
    Cores.of(range(40), 40).quickest(lambda cpu: 1.0)
    assert left_on == [set(range(7)), {0}]


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


GPU = "0000:c1:00.0"


def machine(root: Path, nodes: dict[int, str], device: str) -> Path:
    """`sys` of a machine with these CPUs at its nodes, and a device at these."""
    files = {f"devices/system/node/node{number}/cpulist": f"{cpus}\n" for number, cpus in nodes.items()}
    return write_files(root, {**files, f"bus/pci/devices/{GPU}/local_cpulist": f"{device}\n"})


@pytest.mark.parametrize(
    ("available", "threads", "gpu", "found"),
    [
        (range(16), 1, GPU, {0, 1, 2, 3, 8, 9, 10, 11}),
        (range(2, 16), 1, GPU, {2, 3, 8, 9, 10, 11}),
        ((4, 5, 6), 1, GPU, (4, 5, 6)),
        ((3, 4, 5, 6), 1, GPU, (3, 4, 5, 6)),  # no room beside the one that is timed
        ((2, 3, 4, 5, 6), 1, None, {4, 5, 6}),  # without one, on the node with most of our CPUs
        ((2, 3, 4, 5, 6), 3, None, (2, 3, 4, 5, 6)),
    ],
)
def test_workers_stay_on_the_node_that_the_gpu_is_at(
    available: Collection[int], threads: int, gpu: str | None, found: Collection[int], tmp_path: Path
) -> None:
    root = machine(tmp_path, {0: "0-3,8-11", 1: "4-7,12-15"}, "0-3,8-11")
    assert of_one_node(available, threads, gpu, root) == found


@pytest.mark.parametrize("told", ["", "garbled", "-1", "1-", "0-x"])
def test_a_machine_that_does_not_tell_is_taken_as_one_node(tmp_path: Path, told: str) -> None:
    for gpu in (GPU, "0000:ff:00.0"):
        assert of_one_node(range(4), 1, gpu, machine(tmp_path, {0: told}, told)) == range(4)


def test_siblings_are_what_the_kernel_tells(tmp_path: Path) -> None:
    write_files(tmp_path, {"devices/system/cpu/cpu3/topology/thread_siblings_list": "3,99\n"})
    assert siblings(3, tmp_path) == {3, 99} and siblings(4, tmp_path) == {4}
