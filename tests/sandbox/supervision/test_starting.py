"""A command is started where it can be, and what stands in its way is told with what mends it."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command, Limits
from sandbox.errors import DiskFull, SandboxError, Unusable
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import starting, supervisor, user_ids
from sandbox.supervision.control_groups import EVERY_KIND, Kind, settle
from sandbox.supervision.starting import Place, disk_errors
from tests.sandbox.conftest import as_root

ROOT = Path(__file__).resolve().parents[3]
TRUE = Command(("/bin/true",), Path("/"), "worker")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """On a file system that holds no sockets; `below` is where it is mounted."""

    class Without(socket.socket):
        below = tmp_path / "scratch"

        def bind(self, address: Any) -> None:
            if Path(address).is_relative_to(self.below):
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            super().bind(address)

    monkeypatch.setattr(starting.socket, "socket", Without)
    return Place(tmp_path / "scratch", (), 5.0)


def test_where_the_scratch_folder_holds_no_sockets_a_temporary_folder_does(place: Place) -> None:
    with starting.starting(TRUE, place, None) as made:
        folder = made.record.folder
        assert not folder.is_relative_to(place.scratch) and made.channel.is_socket()
        assert [path.name for path in place.scratch.iterdir()] == ["records"]
    assert not folder.exists()


def test_where_no_folder_holds_sockets_nothing_is_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting.socket.socket, "below", Path("/"))
    monkeypatch.setattr(starting.tempfile, "tempdir", str(place.scratch))
    with pytest.raises(SandboxError, match="starting worker failed") as caught, starting.starting(TRUE, place, None):
        pass
    assert "--runs-dir" in caught.value.hint and "TMPDIR" in caught.value.hint
    assert [path.name for path in place.scratch.iterdir()] == ["records"]


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As on a share where root is nobody."""

    def fail(path: object, uid: int, gid: int, **_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(user_ids.os, "chown", fail)


def test_a_folder_that_cannot_be_given_away_is_named_with_what_mends_it_and_a_full_disk_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EPERM)
    with pytest.raises(Unusable, match="cannot be given to a separate user") as caught:
        user_ids.give(tmp_path, 1_900_000_000)
    assert caught.value.stage == "users" and "--runs-dir" in caught.value.hint
    refuse(monkeypatch, errno.EDQUOT)
    with pytest.raises(DiskFull), disk_errors("starting it"):
        user_ids.give(tmp_path, 1_900_000_000)
    with pytest.raises(SandboxError, match="writing failed") as failed, disk_errors("writing"):
        (tmp_path / "missing").rmdir()
    assert not isinstance(failed.value, DiskFull)


@as_root
def test_local_gives_up_separate_users_where_folders_cannot_be_theirs(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EPERM)
    promises = LocalSandbox(sys.executable, open_folder / "scratch").promises()
    assert not promises.separate_users
    assert any("cannot be given to a separate user" in note for note in promises.notes)


@as_root
def test_a_full_disk_has_an_error_of_its_own(tmp_path: Path) -> None:
    """On a real file system of two files, in a mount namespace of a process of its own."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from sandbox.errors import DiskFull
from sandbox.local.provider import LocalSandbox
try:
    LocalSandbox(sys.executable, Path({str(tmp_path)!r}) / "scratch").promises()
except DiskFull as error:
    print("full:", error.exit_status, error.hint)
"""
    mount = f'mount -t tmpfs -o size=64k,nr_inodes=3 none {tmp_path} || exit 9; exec {sys.executable} -c "$CODE"'
    argv = ["unshare", "--mount", "sh", "-c", mount]
    ran = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "CODE": code})
    if ran.returncode in (1, 9) and not ran.stdout:
        pytest.skip(f"this kernel lets nobody mount: {ran.stderr}")
    assert ran.stdout == "full: 32 Free some space; nothing already proven is lost.\n"


def test_nothing_is_started_where_the_disk_is_below_the_floor(tmp_path: Path) -> None:
    command = Command(("/bin/true",), tmp_path, "worker", writable=(tmp_path,), limits=Limits(free_disk_bytes=1 << 62))
    with pytest.raises(DiskFull, match="MiB left"):
        LocalSandbox(sys.executable, tmp_path / "scratch").start(command)


LIMITED = f"""
import json, resource, sys
sys.path.insert(0, {str(ROOT)!r})
from sandbox.supervision import supervisor
kinds, hard = (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC), json.loads(sys.argv[1])
for kind, most in zip(kinds, hard):
    resource.setrlimit(kind, (most, most))
order = supervisor.Order(host_pid=1, argv=[], cwd="/", env={{}}, bounds=[], file_bytes=1 << 20, processes=100)
supervisor._set_limits(order)
print(json.dumps([resource.getrlimit(kind)[1] for kind in kinds]))
"""


@pytest.mark.parametrize(("hard", "expected"), [([1 << 16, 50], [1 << 16, 50]), ([1 << 30, 5000], [1 << 20, 164])])
def test_no_more_is_asked_for_than_the_agent_itself_may_have(hard: list[int], expected: list[int]) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, json.dumps(hard)], capture_output=True, check=True)
    assert json.loads(done.stdout) == expected


def test_control_groups_are_not_given_up_for_limits_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(order: supervisor.Order) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(supervisor, "_set_limits", fail)
    monkeypatch.setattr(supervisor.os, "setsid", lambda: None)
    monkeypatch.setattr(supervisor, "_die_with_supervisor", lambda failure_end: None)
    with pytest.raises(supervisor.LaunchFailure) as caught:
        supervisor._become(supervisor.Order(host_pid=1, argv=[], cwd="/", env={}, bounds=[]), [], -1, -1)
    assert caught.value.stage not in EVERY_KIND

    def attempt(kinds: frozenset[Kind]) -> None:
        raise Unusable(caught.value.stage, caught.value.text)

    with pytest.raises(Unusable):
        settle(attempt)
