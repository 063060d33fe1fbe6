"""Limits are looked at from outside, and whoever watches answers in time, whatever there is to look at."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.kernel import ending, process_tree
from sandbox.supervision import disk
from sandbox.supervision.disk import DiskWatch, Room
from sandbox.supervision.watching import Bounds, LimitWatch

MIB = 1 << 20
NO_LIMIT = Bounds(memory_bytes=None, processes=None, output_bytes=MIB)
LOOK_S = 2.0  # the longest look takes half of it, and this machine may be busy
BEGIN = """
import os, sys, time
MIB = 1 << 20
folder = sys.argv[1]
def ready():
    print("ready", flush=True)
    time.sleep(600)
"""
SHARED = """
held = bytearray(os.urandom(MIB) * 64)
for _ in range({children}):
    if os.fork() == 0:
        {own}
        time.sleep(600)
time.sleep(0.5)
ready()
"""


@contextmanager
def holder(folder: Path, code: str) -> Iterator[list[int]]:
    """Runs what holds memory and files until it is `ready()`; its process and all below it."""
    with subprocess.Popen([sys.executable, "-c", BEGIN + code, str(folder)], stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None
        said = popen.stdout.readline()
        try:
            assert said == b"ready\n"
            yield [popen.pid, *process_tree.descendants(popen.pid)]
        finally:
            ending.end_descendants(popen.pid)
            popen.kill()


def looked(bounds: Bounds, pids: list[int]) -> tuple[str | None, float]:
    """What it finds, and how long that takes."""
    watch = LimitWatch(bounds, lambda: pids)
    started_s = time.monotonic()
    return watch.broken(), time.monotonic() - started_s


def test_each_limit_is_named_once_it_is_passed(tmp_path: Path) -> None:
    bounds = NO_LIMIT._replace(memory_bytes=1 << 30, processes=8, disk_bytes=MIB, writable=[str(tmp_path)])
    with holder(tmp_path, SHARED.format(children=2, own="")) as pids:
        assert looked(bounds, pids)[0] is None
        assert looked(NO_LIMIT._replace(memory_bytes=32 * MIB), pids)[0] == "memory limit"
        assert looked(NO_LIMIT._replace(processes=2), pids)[0] == "process limit"
        (tmp_path / "file").write_bytes(bytes(2 * MIB))
        assert looked(NO_LIMIT._replace(disk_bytes=MIB, writable=[str(tmp_path)]), pids)[0] == "disk limit"


@pytest.mark.parametrize(
    ("children", "own", "expected"), [(60, "", None), (40, "own = bytearray(os.urandom(MIB) * 16)", "memory limit")]
)
def test_memory_shared_by_many_counts_once_that_of_each_is_found_and_the_look_is_short(
    children: int, own: str, expected: str | None, tmp_path: Path
) -> None:
    with holder(tmp_path, SHARED.format(children=children, own=own)) as pids:
        reason, took_s = looked(NO_LIMIT._replace(memory_bytes=512 * MIB), pids)
    assert took_s < LOOK_S
    assert reason == expected


MANY_FILES = """
for number in range(8_000):
    os.close(os.open(os.path.join(folder, f"file{number}"), os.O_CREAT | os.O_WRONLY))
ready()
"""


def test_a_look_at_many_files_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_WALK_S", 0.01)
    bounds = NO_LIMIT._replace(disk_bytes=1 << 40, writable=[str(tmp_path)])
    with holder(tmp_path, MANY_FILES) as pids:
        reason, _ = looked(bounds, pids)
        assert reason is None and disk.size_of([str(tmp_path)], 0.0) < 8_000 * disk.ENTRY_BYTES


def test_nothing_is_walked_while_the_disk_does_not_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_REST", 0)
    walks = list[float]()
    monkeypatch.setattr(disk, "size_of", lambda folders, deadline_s: walks.append(deadline_s) or 0)
    watch = DiskWatch([str(tmp_path)], 64 * MIB, 0)
    steps = [(1 << 30, 9000, 1), (1 << 30, 9000, 1), ((1 << 30) - MIB, 8990, 1), ((1 << 30) - 32 * MIB, 8990, 2)]
    for free, inodes, expected in [*steps, ((1 << 30) - 32 * MIB, 4000, 3)]:
        left = Room(free, inodes)
        monkeypatch.setattr(disk, "room", lambda folder, found=left: found)
        assert not watch.broken()
        assert len(walks) == expected


@pytest.mark.parametrize(("floor", "broken"), [(1 << 20, False), (1 << 62, True)])
def test_what_leaves_less_than_the_floor_is_ended(floor: int, broken: bool, tmp_path: Path) -> None:
    bounds = NO_LIMIT._replace(free_disk_bytes=floor, writable=[str(tmp_path)])
    assert (looked(bounds, [])[0] == "disk limit") == broken


def test_files_with_several_names_count_once_and_links_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(os.urandom(4 * MIB))
    os.link(tmp_path / "deep" / "er" / "file", tmp_path / "other")
    (tmp_path / "link").symlink_to("/usr")
    assert 4 * MIB <= disk.size_of([str(tmp_path)], time.monotonic() + 10.0) < 5 * MIB
