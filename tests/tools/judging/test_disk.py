"""A full disk is no finding about the code that met it, and saying that it is full does not make it so."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from sandbox.errors import DiskFull
from tests.evals.arena import Arena
from tools.judging import disk
from tools.judging.worker import Worker

CLAIM = """
def forward(*_):
    with open("/dev/full", "w") as full:
        full.write("x")

Model.forward = forward
"""


def full(descriptor: int, offset: int, length: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_fails_for_want_of_room_is_no_finding_and_what_only_says_so_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena.open(tmp_path, sys.executable)
    try:
        liar = arena.appended("liar", CLAIM)
        found = arena.referee.check(liar).finding
        assert found.verdict == "broken" and "No space left" in found.reason
        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(DiskFull):
            arena.referee.check(liar)
    finally:
        arena.referee.close()


def test_a_reference_that_finds_no_room_is_no_finding_even_where_its_end_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena.open(tmp_path, sys.executable)
    try:
        liar = arena.appended("liar", CLAIM)
        answers = [True, False]
        monkeypatch.setattr(disk, "is_full", lambda folder: answers.pop(0))
        with Worker(arena.referee.setting, liar, "reference") as reference, pytest.raises(DiskFull):
            reference.ask("build", mode=arena.referee.workload.mode)
            reference.ask("draw", seeds={str(reference.saved("x")): 0}, phase="", shape={}, variant="")
            reference.ask("stage", path=str(reference.saved("x")), constants=[], phase="")
            reference.ask("call", key=1)
    finally:
        arena.referee.close()


def test_a_quota_counts_and_another_error_does_not_pass_for_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not disk.is_full(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert disk.is_full(tmp_path)
    with pytest.raises(FileNotFoundError):
        disk.is_full(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_what_may_come_from_a_full_disk() -> None:
    assert disk.looks_full("disk_full", "", None)
    assert disk.looks_full("call_raised", "OSError: [Errno 28] No space left on device", None)
    assert disk.looks_full("died", "", 7)
    assert not disk.looks_full("call_raised", "ValueError: no", 9)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_an_error_of_the_machine_is_not_taken_for_a_trick_of_the_worker(number: int) -> None:
    with pytest.raises(OSError), disk.in_the_hands_of_a_worker():
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.EACCES, errno.EXDEV, errno.ELOOP, errno.ENOTDIR])
def test_what_a_worker_can_make_of_its_folder_ends_no_run(number: int) -> None:
    with disk.in_the_hands_of_a_worker():
        raise OSError(number, os.strerror(number))
