"""A worker's folders, limits and requests: what it can do with them, and what is said of it."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox.contract import Ended, Limits, ProcessEnded, Promises
from sandbox.errors import DiskFull
from sandbox.guest.wire import Channel
from tests.evals.arena import Arena
from tests.files import write_files
from tests.sandbox.uncontained import OurUser
from tests.tools.judging.conftest import one_tensor
from tools.judging import correctness
from tools.judging.folders import HEADERS
from tools.judging.open_referee import LEAST_DISK_BYTES
from tools.judging.worker import Build, Setting, Worker, WorkerFault

MODES = {True: 0o711, False: 0o700}


class Started:
    """A process that was never one: its channel leads to whoever holds `other`."""

    def __init__(self) -> None:
        one, self.other = socket.socketpair()
        self.channel = Channel(one)
        self.ended = Ended(None, 9, "stopped", "")

    def wait(self, timeout_s: float) -> Ended:
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


def test_a_cache_is_handed_on_without_what_its_key_does_not_cover(setting: Setting, tmp_path: Path) -> None:
    before, own = tmp_path / "before", tmp_path / "own"
    write_files(before, dict.fromkeys(("inductor/aotautograd/a", "inductor/fxgraph/b", "triton/c"), ""))
    (own / "triton").mkdir(parents=True)
    with Worker(setting, Build("x", tmp_path, handed_on=before)) as started:
        files = {path.name for path in started.cache.rglob("*") if path.is_file()}
    assert files == {"b", "c"}
    with Worker(setting, Build("x", tmp_path, own, handed_on=before)) as started:
        assert [path.name for path in started.cache.rglob("*")] == ["triton"]


def test_headers_are_kept_as_bytes_and_not_from_where_a_link_leads(setting: Setting, tmp_path: Path) -> None:
    write_files(tmp_path / "host" / "precompiled_headers", {"x.h": "host"})
    with Worker(setting, Build("x", tmp_path)) as started:
        (started.home / "tmp" / "torchinductor_ratchet").symlink_to(tmp_path / "host")
        assert list(started.keep(HEADERS, tmp_path / "kept").iterdir()) == []
        assert (tmp_path / "host" / "precompiled_headers" / "x.h").exists()
        (started.home / "tmp" / "torchinductor_ratchet").unlink()
        write_files(started.home / HEADERS, {"x.h": "its"})
        assert (started.keep(HEADERS, tmp_path / "more") / "x.h").read_text() == "its"


def test_bytecode_is_written_by_its_maker_alone(setting: Setting, tmp_path: Path) -> None:
    starts = Starts()
    setting = replace(setting, sandbox=cast(Any, starts), toolchain=tmp_path / "toolchain")

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


def test_a_worker_that_reads_no_requests_or_answers_none_in_time_hangs(setting: Setting) -> None:
    """What it has for all answers together is for each of them once it is ready."""
    with Worker(setting, Build("x", setting.guest), timeout_s=0.2) as started, pytest.raises(WorkerFault) as caught:
        started.begin("stage", constants="x" * (3 << 20))
    assert caught.value.kind == "hangs"
    for ready, told in ((False, "no answer within 60 s, all answers together"), (True, "no answer within 0 s")):
        with Worker(setting, Build("x", setting.guest), timeout_s=60.0, in_all=True) as started:
            started._left_s = -1.0  # what it had was used up by earlier answers
            if ready:
                started.ready()
                started.timeout_s = 0.01
            with pytest.raises(WorkerFault, match=f"^{told}$") as caught:
                started.ask("call", key=1)
        assert caught.value.kind == "hangs"


WROTE_MORE = "disk limit: it wrote more than the {} GiB that it may, or the last of the disk"


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
        assert limits.disk_bytes >= LEAST_DISK_BYTES
        narrow = arena.with_setting(limits=replace(limits, disk_bytes=64 << 20))
        found = narrow.referee.check(filling).finding
        assert (found.verdict, found.reason) == ("broken", WROTE_MORE.format("0.0625"))
    finally:
        arena.referee.close()


def test_no_room_for_a_result_is_a_full_disk(setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Worker(setting, Build("x", setting.guest)) as started:
        one_tensor(started.saved("x"))
        monkeypatch.setattr(os, "copy_file_range", full)
        with pytest.raises(DiskFull):
            started.take("x", tmp_path / "x")
        with pytest.raises(DiskFull), started.showing(started.saved("x")):
            pass
        assert list(started.inbox.iterdir()) == []
    assert not (tmp_path / "x").exists()


def test_what_writes_more_than_it_may_is_broken_and_told_so(setting: Setting) -> None:
    with Worker(replace(setting, limits=Limits(disk_bytes=8 << 30)), Build("x", setting.guest)) as started:
        fault = started._fault(ProcessEnded(Ended(None, 9, "disk limit", "")))
    assert correctness.fault_verdict(fault) == ("broken", WROTE_MORE.format("8"))
