"""Control groups end what is in them and hold their limits; signals freeze what they can. The contract tries both."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.contract import Command, Limits, WouldNotFreeze
from sandbox.errors import SandboxError, Unusable
from sandbox.kernel import cgroup, ending, freezer, process_tree
from sandbox.supervision.control_groups import EVERY_KIND, make
from sandbox.supervision.watching import SPARE_MEMORY, SPARE_TASKS
from tests.sandbox.conftest import until

TRUE = Command(("/bin/true",), Path("/"), "test")


@contextlib.contextmanager
def busy(code: str, *arguments: str) -> Iterator[freezer.Members]:
    """The members of a busy tree."""
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE) as popen:

        def members() -> list[int]:
            return [popen.pid, *process_tree.descendants_quickly(popen.pid)]

        assert popen.stdout is not None
        popen.stdout.readline()
        try:
            yield members
        finally:
            ending.kill(members())


def ticks(pids: list[int]) -> list[int]:
    return [found.own_ticks for found in map(process_tree.stat, pids) if found is not None]


def test_a_process_that_forks_all_the_time_is_frozen_too() -> None:
    """By signals, which have to catch up with it; a control group has nothing to catch up with."""
    code = """
import os, time
print("ready", flush=True)
while True:
    if os.fork() == 0:
        time.sleep(0.002)
        os._exit(0)
    os.wait()
"""
    signals = freezer.SignalFreezer()
    with busy(code) as members:
        for _ in range(20):
            signals.freeze(members)
            before, used = members(), ticks(members())
            threading.Event().wait(0.01)
            assert (members(), ticks(members())) == (before, used)
            signals.thaw(members)


def test_what_cannot_be_stopped_is_a_sandbox_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezer, "PATIENCE_S", 0.05)
    monkeypatch.setattr(freezer, "_signal", lambda pid, number: False)  # as for a process of another user
    with busy("print(flush=True)\nwhile True: pass") as members, pytest.raises(SandboxError) as caught:
        freezer.SignalFreezer().freeze(members)
    assert re.search(r"processes \[\d+\] could not be stopped", caught.value.message)


def test_patience_grows_with_the_tasks_that_want_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    loads = {1: 1.0, 2: 1.0, 9: 4.5, 4000: freezer.MOST_TASKS}
    for running, times in loads.items():
        monkeypatch.setattr(Path, "read_text", lambda path, running=running: f"0.1 0.1 0.1 {running}/5000 7\n")
        assert freezer.patience_s() == times * freezer.PATIENCE_S
    monkeypatch.undo()
    assert freezer.patience_s() >= freezer.PATIENCE_S, "as the kernel writes it"


WAITS_IN_THE_KERNEL = """
import ctypes, os, signal, sys
CLONE_VFORK, CLONE_PARENT = 0x4000, 0x8000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
print("ready", flush=True)
flags = CLONE_VFORK | signal.SIGCHLD | (CLONE_PARENT if sys.argv[1] == "elsewhere" else 0)
if ctypes.CDLL(None).syscall(SYS_CLONE, flags, 0, 0, 0, 0) == 0:
    signal.pause()
"""


@pytest.mark.parametrize("child", ["its own", "elsewhere"])
def test_of_what_waits_in_the_kernel_only_a_vfork_counts_as_stopped(
    child: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other wait ends by itself, and then the kernel has still work to do for it."""
    monkeypatch.setattr(freezer, "PATIENCE_S", 0.2)
    monkeypatch.setattr(freezer, "MOST_TASKS", 1)
    signals, before = freezer.SignalFreezer(), set(process_tree.children_quickly(os.getpid()))
    with busy(WAITS_IN_THE_KERNEL, child) as members:
        waiting = members()[0]
        until(lambda: getattr(process_tree.stat(waiting), "state", "") == "D")
        if child == "its own":
            signals.freeze(members)
            return
        with pytest.raises(WouldNotFreeze):
            signals.freeze(members)
        (other,) = {*process_tree.children_quickly(os.getpid())} - {waiting} - before
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
        signals.freeze(members)  # it comes out, and stops


def test_a_group_that_does_not_freeze_says_so_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a folder that looks like a group with a task that is stuck in the kernel."""
    monkeypatch.setattr(freezer, "PATIENCE_S", 0.05)
    monkeypatch.setattr(type(tmp_path), "mkdir", lambda self: None)
    for name, text in {"cgroup.freeze": "0", "cgroup.events": "populated 1\nfrozen 0\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(WouldNotFreeze, match="stuck in the kernel"):
        cgroup.Group(tmp_path).freeze(list)


def test_ending_a_group_kills_and_removes_it() -> None:
    try:
        groups = make(f"ratchet-test-{secrets.token_hex(8)}", TRUE, frozenset({"groups"}))
    except Unusable as error:
        pytest.skip(f"no control group can be made here: {error}")
    (folder,) = groups.folders
    code = """
import os, sys
open(sys.argv[1], "w").write("0")
if os.fork() == 0:
    os.setsid()
else:
    os.fork()
    print(flush=True)
while True: pass
"""
    with busy(code, *groups.join) as members:
        assert len(members()) == 3
        groups.close()
        assert [found for found in map(process_tree.stat, members()) if found is not None and found.alive] == []
    assert not folder.exists()
    assert cgroup.end_group(folder) == []


def test_groups_are_refused_loudly_where_none_can_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroup, "home", lambda: None)
    with pytest.raises(Unusable, match="no version 2 hierarchy"):
        make("ratchet-test", TRUE, EVERY_KIND)
    monkeypatch.setattr(cgroup, "home", lambda: tmp_path)  # a folder, but no hierarchy
    with pytest.raises(Unusable, match="no control group can be made"):
        make("ratchet-test", TRUE, EVERY_KIND)
    assert list(tmp_path.iterdir()) == []


def test_each_controller_that_is_there_holds_its_limit_and_a_missing_one_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a folder that looks like a hierarchy: few machines give an agent's group a controller."""
    files = ["cgroup.freeze", "cgroup.events", "cgroup.procs", "memory.max", "memory.swap.max", "pids.max"]

    mkdir = Path.mkdir

    def made(self: Path) -> None:
        mkdir(self)
        for name in files:
            (self / name).touch()

    monkeypatch.setattr(cgroup, "home", lambda: tmp_path)
    monkeypatch.setattr(type(tmp_path), "mkdir", lambda self, *_, **__: made(self))
    command = replace(TRUE, cpus=(0, 2), limits=Limits(memory_bytes=1 << 20, processes=8))
    with pytest.raises(Unusable) as caught:
        make("one", command, EVERY_KIND)
    assert caught.value.stage == "cpusets"
    files.append("cpuset.cpus")
    groups = make("two", command, EVERY_KIND)
    written = {name: (tmp_path / "two" / name).read_text() for name in files if name.endswith((".max", ".cpus"))}
    assert written["cpuset.cpus"] == "0,2" and written["pids.max"] == str(8 + SPARE_TASKS)
    assert (written["memory.max"], written["memory.swap.max"]) == (str((1 << 20) + SPARE_MEMORY), "0")
    assert groups.memory_events == tmp_path / "two" / "memory.events"
