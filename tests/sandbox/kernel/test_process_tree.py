"""What /proc says is read right, also about processes that try to be misread; what is ended is dead."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.kernel import ending, process_tree
from tests.sandbox.conftest import until


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program, once it has printed a line."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None
        popen.stdout.readline()
        try:
            yield popen
        finally:
            ending.end_descendants(popen.pid)
            popen.kill()


HERD = """
import os, threading
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
worker = os.fork()
while worker == 0:
    pass
for _ in range(500):
    threading.Thread(target=os.waitid, args=(os.P_PID, worker, os.WEXITED), daemon=True).start()
print(worker, flush=True)
os.read(0, 1)
os.kill(worker, 9)
os._exit(0)
"""


def test_all_that_a_stopped_process_ran_is_counted_though_it_is_still_on_its_cpu() -> None:
    """It says that it is stopped, and then wakes whoever waits for it, which are many here."""
    with subprocess.Popen([sys.executable, "-c", HERD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as popen:
        assert popen.stdin is not None and popen.stdout is not None
        worker = int(popen.stdout.readline())
        late_ns = []
        for _ in range(100):
            os.kill(worker, signal.SIGSTOP)
            while getattr(process_tree.stat(worker), "state", "T") != "T":
                pass  # the moment that it says so is what this is about
            counted = process_tree.ran_ns([worker])
            time.sleep(0.003)
            late_ns.append(process_tree.ran_ns([worker])[worker] - counted[worker])
            os.kill(worker, signal.SIGCONT)
            time.sleep(0.003)
        popen.stdin.write(b"x")
    assert late_ns == [0] * 100


def test_a_name_with_brackets_and_spaces_is_no_confusion(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    shutil.copy("/bin/sleep", odd)
    with subprocess.Popen([str(odd), "600"]) as popen:
        until(lambda: popen.pid in process_tree.descendants(os.getpid()))
        found = process_tree.stat(popen.pid)
        popen.kill()
    assert found is not None and (found.parent, found.threads) == (os.getpid(), 1)


def test_both_ways_of_finding_descendants_agree() -> None:
    code = """
import os, threading, time
[os.fork() for _ in range(3)]
print("x", flush=True)
threading.Thread(target=os.fork).start()  # what a thread has started counts, too
time.sleep(600)
"""
    with child(code) as popen:
        until(lambda: len(process_tree.descendants(popen.pid)) >= 15)
        assert sorted(process_tree.descendants(popen.pid)) == sorted(process_tree.descendants_quickly(popen.pid))


def test_a_process_whose_main_thread_has_ended_is_alive() -> None:
    code = """
import ctypes, threading, time
held = bytearray(b"x" * (30 << 20))
def on():
    time.sleep(0.05)
    print("x", flush=True)
    time.sleep(600)
threading.Thread(target=on).start()
ctypes.CDLL(None).syscall(60 if __import__("os").uname().machine == "x86_64" else 93, 0)
"""
    with child(code) as popen:
        found = process_tree.stat(popen.pid)
        assert found is not None and found.state == "Z" and found.alive
        assert process_tree.resident_bytes([popen.pid]) > 30 << 20


def test_a_zombie_is_not_alive() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    found = process_tree.stat(pid)
    os.waitpid(pid, 0)
    assert found is not None and not found.alive
    assert process_tree.stat(pid) is None


def test_time_used_is_no_rounder_for_many_processes_than_for_one() -> None:
    """Each rounded to a tick of 10 ms would add an error of its own, by which a tree seems to use a core it has not."""
    code = """
import os, time
if not all(os.fork() for _ in range(8)):
    end = time.process_time() + 0.005 + os.getpid() % 8 / 1000
    while time.process_time() < end:
        pass
    time.sleep(600)
print(flush=True)
os.wait()
"""
    with child(code) as popen:
        tree = [popen.pid, *process_tree.descendants(popen.pid)]
        until(lambda: all(process_tree.stat(pid).state == "S" for pid in tree))  # type: ignore[union-attr]
        used_s = process_tree.cpu_time_s(popen.pid, (), process_tree.every_process())
        ran_s = sum(process_tree.ran_ns(tree).values()) / 1e9
    assert abs(used_s - ran_s) < 0.001


def test_lists_of_cpus_are_read() -> None:
    lists = {"0": [0], "0-2,5": [0, 1, 2, 5], "": [], "3,1-2\n": [3, 1, 2]}
    assert {text: process_tree.parse_cpu_list(text) for text in lists} == lists
    assert process_tree.allowed_cpus(os.getpid(), os.getpid()) == os.sched_getaffinity(0)


def test_anonymous_memory_counts_and_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(40 << 20))
    code = """
import mmap, time
file = open({path!r})
pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
touched = sum(pages[::4096])
{more}
print("x", flush=True)
time.sleep(600)
"""
    path = str(tmp_path / "file")
    with child(code.format(path=path, more="")) as mapped:
        assert 0 < process_tree.resident_bytes([mapped.pid]) < 30 << 20
    with child(code.format(path=path, more="held = bytearray(b'x' * (40 << 20))")) as holding:
        assert process_tree.resident_bytes([holding.pid]) > 40 << 20


SHARING = """
import os, time
held = bytearray(os.urandom(1 << 20) * 64)
ready, done = os.pipe()
for _ in range(12):
    if os.fork() == 0:
        own = bytearray(os.urandom(1 << 20) * {own})
        os.write(done, b"x")
        time.sleep(600)
for _ in range(12):
    os.read(ready, 1)
print('x', flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("own", [0, 32], ids=["all shared", "half of it each's own"])
def test_shared_memory_counts_once_and_without_time_for_all_the_rest_is_taken_to_share_as_much(
    own: int,
) -> None:
    with child(SHARING.format(own=own)) as popen:
        pids = [popen.pid, *process_tree.descendants(popen.pid)]
        exact = process_tree.proportional_bytes(pids)
        assert process_tree.resident_bytes(pids) > 13 * 64 << 20
        assert (64 + 12 * own) << 20 < exact < (64 + 12 * own + 130) << 20
        guessed = process_tree.proportional_bytes(pids, within_s=0.0)
        assert exact / 1.3 < guessed < exact * 1.3


def test_what_forbids_to_be_looked_at_counts_with_all_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process of the same user that nobody may trace does, for anybody but root."""
    read = process_tree._read
    monkeypatch.setattr(process_tree, "_read", lambda path: b"" if path.endswith("smaps_rollup") else read(path))
    with child("import time\nprint('x', flush=True)\ntime.sleep(600)") as popen:
        os.kill(popen.pid, signal.SIGSTOP)  # or it may take a page between the two looks
        os.waitpid(popen.pid, os.WUNTRACED)
        assert process_tree.proportional_bytes([popen.pid]) == process_tree.resident_bytes([popen.pid]) > 0


def test_memory_that_was_swapped_out_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "status": b"Name:\tx\nRssAnon:\t    2 kB\nRssFile:\t   99 kB\nRssShmem:\t    1 kB\nVmSwap:\t    4 kB\n",
        "smaps_rollup": b"Pss:          9 kB\nPss_Anon:     1 kB\nPss_Shmem:    1 kB\nSwap:    4 kB\nSwapPss:  2 kB\n",
    }
    monkeypatch.setattr(process_tree, "_read", lambda path: files[path.rpartition("/")[2]])
    assert process_tree.resident_bytes([1]) == 7 << 10
    assert process_tree.proportional_bytes([1]) == 4 << 10


def test_what_is_ended_is_dead_when_the_call_returns_and_what_cannot_be_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        os.kill(sleeper.pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(ending, "kill", lambda pids: None)
            assert not ending.end([sleeper.pid], patience_s=0.01)
        assert ending.end([sleeper.pid])
        found = process_tree.stat(sleeper.pid)
        assert found is None or not found.alive
    assert ending.end([sleeper.pid])  # gone, which is no error
