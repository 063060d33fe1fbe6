"""Limits are looked at from outside, and whoever watches answers in time, whatever there is to look at."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.kernel import ending, process_tree
from sandbox.supervision import disk
from sandbox.supervision.disk import DiskWatch, Room
from sandbox.supervision.watching import Bounds, LimitWatch

MIB = 1 << 20
LOOK_S = 2.0  # the longest look takes half of it, and this machine may be busy
SHARED = """
import os, time
held = bytearray(os.urandom(1 << 20) * 64)
for _ in range({children}):
    if os.fork() == 0:
        own = bytearray(os.urandom(1 << 20) * {own})
        time.sleep(600)
time.sleep(0.5)
print(flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("children", "own", "expected"), [(60, 0, None), (40, 16, "memory limit")])
def test_memory_shared_by_many_counts_once_that_of_each_is_found_and_the_look_is_short(
    children: int, own: int, expected: str | None
) -> None:
    code = SHARED.format(children=children, own=own)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None
        popen.stdout.readline()
        pids = [popen.pid, *process_tree.descendants(popen.pid)]
        try:
            watch = LimitWatch(Bounds(memory_bytes=512 * MIB, processes=None, output_bytes=MIB), lambda: pids)
            started_s = time.monotonic()
            reason, took_s = watch.broken(), time.monotonic() - started_s
        finally:
            ending.kill(pids)
    assert len(pids) == 1 + children and (reason, took_s < LOOK_S) == (expected, True)


def test_a_look_at_many_files_is_short(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number}").touch()
    assert disk.size_of([str(tmp_path)], 0.0) < 2000 * disk.ENTRY_BYTES <= disk.size_of([str(tmp_path)], float("inf"))


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


def test_files_with_several_names_count_once_and_links_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(os.urandom(4 * MIB))
    os.link(tmp_path / "deep" / "er" / "file", tmp_path / "other")
    (tmp_path / "link").symlink_to("/usr")
    assert 4 * MIB <= disk.size_of([str(tmp_path)], time.monotonic() + 10.0) < 5 * MIB
