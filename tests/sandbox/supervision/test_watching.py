"""Limits are looked at from outside, and whoever watches answers in time, whatever there is to look at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kernel import ending
from sandbox.supervision.watching import Bounds, LimitWatch
from tests.sandbox.supervision.holding import MIB, holder

NO_LIMIT = Bounds(memory_bytes=None, processes=None, output_bytes=MIB)
LOOK_S = 2.0  # the longest look takes half of it, and this machine may be busy
MANY_DESCRIPTORS = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
for _ in range(min(hard, 10_000) - 50): os.dup(0)
for _ in range(30):
    if os.fork() == 0: time.sleep(600)
ready()
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


def looked(bounds: Bounds, pids: list[int]) -> tuple[str | None, float]:
    """What it finds, and how long that takes."""
    watch = LimitWatch(bounds, lambda: pids)
    started_s = time.monotonic()
    return watch.broken(), time.monotonic() - started_s


def test_what_keeps_to_its_limits_is_let_go_on(tmp_path: Path) -> None:
    bounds = NO_LIMIT._replace(memory_bytes=1 << 30, processes=8, disk_bytes=MIB, writable=[str(tmp_path)])
    with holder(tmp_path, "ready()") as pids:
        assert looked(bounds, pids)[0] is None


def test_each_limit_is_named(tmp_path: Path) -> None:
    with holder(tmp_path, SHARED.format(children=2, own="").replace("ready()", "file = hold()\nready()")) as pids:
        assert looked(NO_LIMIT._replace(memory_bytes=32 * MIB), pids)[0] == "memory limit"
        assert looked(NO_LIMIT._replace(processes=2), pids)[0] == "process limit"
        assert looked(NO_LIMIT._replace(disk_bytes=MIB, writable=[str(tmp_path)]), pids)[0] == "disk limit"


def test_a_look_is_short_however_many_descriptors_there_are(tmp_path: Path) -> None:
    bounds = NO_LIMIT._replace(disk_bytes=64 * MIB, writable=[str(tmp_path)])
    with holder(tmp_path, MANY_DESCRIPTORS) as pids:
        reason, took_s = looked(bounds, pids)
    assert took_s < LOOK_S
    assert reason is None  # it has written nothing


def test_memory_shared_by_many_counts_once_and_the_look_is_short(tmp_path: Path) -> None:
    with holder(tmp_path, SHARED.format(children=60, own="")) as pids:
        reason, took_s = looked(NO_LIMIT._replace(memory_bytes=512 * MIB), pids)
    assert took_s < LOOK_S
    assert reason is None


def test_memory_of_each_among_shared_memory_is_found(tmp_path: Path) -> None:
    with holder(tmp_path, SHARED.format(children=40, own="own = bytearray(os.urandom(MIB) * 16)")) as pids:
        assert looked(NO_LIMIT._replace(memory_bytes=512 * MIB), pids)[0] == "memory limit"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Watches a tree that has a lot to look at, until it is told to stop."""
    code = f"""
import sys
from pathlib import Path
from sandbox.kernel import ending
from sandbox.supervision.watching import Bounds, LimitWatch, Output, Signals, watch
import os
from tests.sandbox.supervision.holding import MIB, holder
from tests.sandbox.supervision.test_watching import MANY_DESCRIPTORS, NO_LIMIT
signals, output = Signals(), Output(os.pipe()[0])
bounds = NO_LIMIT._replace(disk_bytes=64 * MIB, writable=[{str(tmp_path)!r}])
with holder(Path({str(tmp_path)!r}), MANY_DESCRIPTORS) as pids:
    print("watching", flush=True)
    print(watch(bounds, output, LimitWatch(bounds, lambda: pids), signals, lambda: False), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as popen:
        yield popen
        ending.end_descendants(popen.pid)
        popen.kill()


def test_a_wish_to_stop_is_heard_in_time(supervisor: subprocess.Popen[bytes]) -> None:
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == b"watching\n"
    time.sleep(0.1)
    os.kill(supervisor.pid, signal.SIGTERM)
    asked_s = time.monotonic()
    assert supervisor.stdout.readline() == b"stopped\n"
    assert time.monotonic() - asked_s < LOOK_S
