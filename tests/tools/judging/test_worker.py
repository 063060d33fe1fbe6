"""A worker's folders, limits and requests: what it can do with them, and what is said of it."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox import view
from sandbox.contract import Ended, Limits, ProcessEnded, Promises
from sandbox.errors import DiskFull
from sandbox.guest.wire import Channel
from tests.evals.arena import Arena
from tests.files import write_files
from tests.sandbox.uncontained import OurUser
from tests.tools.judging.saved import saved
from tools.judging import correctness, open_referee, own_tests, taking
from tools.judging.folders import HEADERS
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Workload

MODES = {True: 0o711, False: 0o700}


class Started:
    """A process that was never one: its channel leads to whoever holds `other`."""

    def __init__(self) -> None:
        one, self.other = socket.socketpair()
        self.channel = Channel(one)
        self.ended = Ended(None, 9, "stopped", "")

    def poll(self) -> Ended:
        return self.ended

    def stop(self) -> Ended:
        self.channel.close()
        self.other.close()
        return self.ended


class Starts:
    """A sandbox in which nothing runs."""

    def __init__(self, separate_users: bool = True) -> None:
        self.separate_users, self.asked = separate_users, list[Any]()

    def promises(self) -> Promises:
        return Promises(True, True, self.separate_users, True, True, True)

    def start(self, command: Any) -> Started:
        self.asked.append(command)
        return Started()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(cast(Any, Starts()), sys.executable, tmp_path / "guest", "bench.py", tmp_path / "workers")


def modes(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("separate_users", MODES)
def test_nobody_else_passes_the_folders_of_a_worker_that_has_our_user(separate_users: bool, setting: Setting) -> None:
    before = os.umask(0o000)  # however generous the person is
    try:
        started = Worker(replace(setting, sandbox=cast(Any, Starts(separate_users))), Build("x", setting.guest))
    finally:
        os.umask(before)
    assert modes(started.root) == modes(setting.scratch) == MODES[separate_users]
    started.close()


def test_a_file_that_is_not_ours_is_not_revealed(setting: Setting, tmp_path: Path) -> None:
    write_files(tmp_path, {"ours": "x", "theirs": "x"})
    (tmp_path / "ours").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    with Worker(setting, Build("x", tmp_path)) as started:
        assert Path(started.reveal(tmp_path / "ours")).read_text() == "x"
        if os.geteuid() == 0:
            os.chown(tmp_path / "theirs", 12345, 12345)
            with pytest.raises(WorkerFault, match="theirs"):
                started.reveal(tmp_path / "theirs")
        with pytest.raises(WorkerFault, match="link"):
            started.reveal(tmp_path / "link")
    assert modes(tmp_path / "ours") == 0o600


def test_what_is_handed_on_comes_without_what_is_kept_under_too_few_of_its_causes(
    setting: Setting, tmp_path: Path
) -> None:
    before, own = tmp_path / "before", tmp_path / "own"
    for place in ("inductor/aotautograd/a", "inductor/fxgraph/b", "triton/c"):
        (before / place).parent.mkdir(parents=True)
        (before / place).write_text(place)
    (own / "triton").mkdir(parents=True)
    with Worker(setting, Build("x", tmp_path, handed_on=before)) as started:
        files = {path.name for path in started.cache.rglob("*") if path.is_file()}
    assert files == {"b", "c"}
    with Worker(setting, Build("x", tmp_path, own, handed_on=before)) as started:
        assert [path.name for path in started.cache.rglob("*")] == ["triton"]


def test_a_cache_brings_no_rights_along(tmp_path: Path) -> None:
    write_files(tmp_path / "cache", {"program": "#!/bin/sh\n", "inductor/kernel.so": "code"})
    (tmp_path / "cache" / "program").chmod(0o6755)
    (tmp_path / "cache" / "inductor").chmod(0o3777)
    os.utime(tmp_path / "cache" / "program", ns=(10**18, 10**18))
    taking.copy_folder(tmp_path / "cache", tmp_path / "into")
    assert modes(tmp_path / "into" / "program") == modes(tmp_path / "into" / "inductor" / "kernel.so") == 0o644
    assert modes(tmp_path / "into" / "inductor") == 0o755
    assert (tmp_path / "into" / "program").stat().st_mtime_ns == 10**18


def test_headers_are_kept_as_bytes_and_not_from_where_a_link_leads(setting: Setting, tmp_path: Path) -> None:
    write_files(tmp_path / "host" / "precompiled_headers", {"x.h": "host"})
    with Worker(setting, Build("x", tmp_path)) as started:
        (started.home / "tmp" / "torchinductor_ratchet").symlink_to(tmp_path / "host")
        assert list(started.keep(HEADERS, tmp_path / "kept").iterdir()) == []
        assert (tmp_path / "host" / "precompiled_headers" / "x.h").exists()
        (started.home / "tmp" / "torchinductor_ratchet").unlink()
        write_files(started.home / HEADERS, {"x.h": "its"})
        assert (started.keep(HEADERS, tmp_path / "more") / "x.h").read_text() == "its"


def test_bytecode_is_read_from_where_it_was_made_and_written_by_its_maker_alone(tmp_path: Path) -> None:
    starts = Starts()
    setting = Setting(
        cast(Any, starts),
        "python",
        tmp_path / "guest",
        "bench.py",
        tmp_path / "workers",
        toolchain=tmp_path / "toolchain",
    )

    def told(bytecode: bool) -> tuple[str | None, str, Path]:
        with Worker(setting, Build("x", tmp_path), bytecode=bytecode) as started:
            env = starts.asked[-1].env
            return env.get("PYTHONPYCACHEPREFIX"), env["PYTHONDONTWRITEBYTECODE"], started.home

    prefix, not_written, home = told(True)
    assert (prefix, not_written) == (str(home / "bytecode"), "")
    assert told(False)[:2] == (None, "1")
    write_files(tmp_path / "toolchain", {"headers/x.h": "", "cache/x": ""})
    assert told(False)[:2] == (None, "1")
    write_files(tmp_path / "toolchain", {"bytecode/x.pyc": ""})
    assert told(False)[:2] == (str(tmp_path / "toolchain" / "bytecode"), "1")


def test_a_worker_that_reads_no_requests_hangs(setting: Setting) -> None:
    with Worker(setting, Build("x", setting.guest), timeout_s=0.2) as started, pytest.raises(WorkerFault) as caught:
        started.begin("stage", constants="x" * (3 << 20))
    assert caught.value.kind == "hangs"


@pytest.mark.parametrize("ready", [False, True])
def test_what_it_waits_for_all_answers_is_waited_for_each_once_it_is_ready(ready: bool, setting: Setting) -> None:
    started = Worker(setting, Build("x", setting.guest), timeout_s=60.0, in_all=True)
    started._left_s = -1.0  # what it had was used up by earlier answers
    if ready:
        started.ready()
        started.timeout_s = 0.01
    told = "no answer within 0 s" if ready else "no answer within 60 s, all answers together"
    with pytest.raises(WorkerFault, match=f"^{told}$") as fault:
        started.ask("call", key=1)
    assert fault.value.kind == "hangs"
    started.close()


WROTE_MORE = "disk limit: it wrote more than the {} GiB that it may, or the last of the disk"


def test_what_writes_more_than_it_may_is_broken_and_told_so(setting: Setting) -> None:
    with Worker(replace(setting, limits=Limits(disk_bytes=8 << 30)), Build("x", setting.guest)) as started:
        fault = started._fault(ProcessEnded(Ended(None, 9, "disk limit", "")))
    assert correctness.fault_verdict(fault) == ("broken", WROTE_MORE.format("8"))


FILLS = """
import os, time

with open(os.path.join(os.environ["HOME"], "full"), "wb") as full:
    for _ in range(256):
        full.write(bytes(1 << 20))
time.sleep(60)
"""


@pytest.mark.slow
def test_a_candidate_that_fills_the_disk_meets_the_limit_of_a_run(tmp_path: Path) -> None:
    sandbox = OurUser(sys.executable, tmp_path / "sandbox", owned=(tmp_path,))
    arena = Arena.open(tmp_path, sys.executable, sandbox=sandbox)
    filling = arena.appended("filling", FILLS)
    try:
        limits = arena.referee.setting.limits
        assert limits.disk_bytes == limits.file_bytes and limits.disk_bytes is not None
        assert limits.disk_bytes >= open_referee.LEAST_DISK_BYTES
        narrow = arena.with_setting(limits=replace(limits, disk_bytes=64 << 20))
        found = narrow.referee.check(filling).finding
        assert (found.verdict, found.reason) == ("broken", WROTE_MORE.format("0.0625"))
    finally:
        arena.referee.close()


@pytest.mark.parametrize("free, allowed", [(1 << 30, 8 << 30), (400 << 30, 100 << 30), (1 << 50, 768 << 30)])
def test_a_worker_may_take_a_part_of_what_is_free(
    free: int, allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_referee.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    limits = open_referee.limits(tmp_path, 1 << 30)
    assert (limits.disk_bytes, limits.file_bytes, limits.memory_bytes) == (allowed, allowed, 1 << 30)


def test_only_folders_of_packages_in_the_interpreters_own_installation_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = write_files(tmp_path / "venv" / "lib" / "site-packages", {"torch.py": ""})
    elsewhere = write_files(tmp_path / "other" / "site-packages", {"x": ""})
    (tmp_path / "venv" / "lib" / "dist-packages").symlink_to("/")
    (tmp_path / "venv" / "dist-packages").symlink_to(elsewhere)
    (tmp_path / "venv" / "lib" / "loop").symlink_to("loop")
    monkeypatch.setattr(view, "of_python", lambda python: (tmp_path / "venv",))
    lib = tmp_path / "venv" / "lib"
    named = [
        "/",
        "/etc",
        "\0",
        "site-packages",
        f"{packages}/../../..",
        str(elsewhere),
        str(lib),
        str(lib / "dist-packages"),
        f"{lib}/{'x' * 300}/site-packages",
        f"{lib}/loop/site-packages",
        str(tmp_path / "venv" / "dist-packages"),
        str(packages),
    ]
    workload = cast(Workload, SimpleNamespace(environment={"installed": named}))
    assert open_referee.installed(workload, "python") == [packages]


def test_this_interpreters_packages_are_watched() -> None:
    import numpy

    packages = Path(numpy.__file__).resolve().parent.parent
    workload = cast(Workload, SimpleNamespace(environment={"installed": [str(packages)]}))
    assert open_referee.installed(workload, sys.executable) == [packages]
    assert open_referee.installed(workload, "/nowhere/python") == []


def test_no_room_for_what_is_taken_over_is_a_full_disk_and_leaves_nothing_half(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Worker(setting, Build("x", setting.guest)) as started:
        saved(started.saved("x"))
        monkeypatch.setattr(os, "copy_file_range", full)
        with pytest.raises(DiskFull):
            started.take("x", tmp_path / "x")
        with pytest.raises(DiskFull), started.showing(started.saved("x")):
            pass
        assert list(started.inbox.iterdir()) == []
    assert not (tmp_path / "x").exists()


def test_names_of_tests_that_cannot_be_sent_back_do_not_count() -> None:
    told = {"passed": ["test_a.py::test_a", "x" * 5000, "\x1b[2J", 3, ["x"]]}
    assert own_tests._ids(told, "passed") == ["test_a.py::test_a"]
