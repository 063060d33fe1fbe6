"""A channel is made where one can be, and what stands in its way is told with what mends it."""

from __future__ import annotations

import errno
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command
from sandbox.errors import DiskFull, SandboxError, Unusable
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import preparing, user_ids
from sandbox.supervision.preparing import Place, disk_errors, prepare

TRUE = Command(("/bin/true",), Path("/"), "worker")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can use other user ids")


class Without(socket.socket):
    """A socket on a machine where `below` lies on a file system that holds none."""

    below = Path("/")

    def bind(self, address: Any) -> None:
        if Path(address).is_relative_to(self.below):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        super().bind(address)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """On a file system that holds no sockets."""
    monkeypatch.setattr(preparing.socket, "socket", type("_", (Without,), {"below": tmp_path / "scratch"}))
    made = Place(tmp_path / "scratch", (), 5.0)
    made.make(for_others=False)
    return made


def test_where_the_scratch_folder_holds_no_sockets_a_temporary_folder_does(place: Place) -> None:
    with ExitStack() as undo:
        made = prepare("one", TRUE, place, None, undo)
        folder = made.filed.record.folder
        assert not folder.is_relative_to(place.scratch) and (folder / "channel").is_socket()
        assert [path.name for path in place.scratch.iterdir()] == ["records"]
    assert not folder.exists()


def test_where_no_folder_holds_sockets_nothing_is_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing.socket.socket, "below", Path("/"))
    monkeypatch.setattr(preparing.tempfile, "tempdir", str(place.scratch))
    stopping = pytest.raises(SandboxError, match="starting it failed")
    with stopping as caught, disk_errors("starting it"), ExitStack() as undo:
        prepare("one", TRUE, place, None, undo)
    assert "--runs-dir" in caught.value.hint and "TMPDIR" in caught.value.hint
    assert [path.name for path in place.scratch.iterdir()] == ["records"]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a share where root is nobody."""

    def refuse(path: object, uid: int, gid: int, **_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(user_ids.os, "chown", refuse)


@pytest.mark.usefixtures("refused")
def test_a_folder_that_cannot_be_given_away_is_named_with_what_mends_it(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be given to a separate user") as caught:
        user_ids.give(tmp_path, 1_900_000_000)
    assert caught.value.stage == "users" and "--runs-dir" in caught.value.hint


def test_a_full_disk_is_still_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, uid: int, gid: int, **_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(user_ids.os, "chown", refuse)
    with pytest.raises(DiskFull), disk_errors("starting it"):
        user_ids.give(tmp_path, 1_900_000_000)


@as_root
@pytest.mark.usefixtures("refused")
def test_local_gives_up_separate_users_where_folders_cannot_be_theirs(open_folder: Path) -> None:
    promises = LocalSandbox(sys.executable, open_folder / "scratch").promises()
    assert not promises.separate_users
    assert any("cannot be given to a separate user" in note for note in promises.notes)
