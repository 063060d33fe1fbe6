"""A full disk is no finding about the code that met it, and saying that it is full does not make it so."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

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


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_no_finding_and_a_false_claim_of_one_is(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = arena.appended("liar", CLAIM)
    found = arena.referee.check(liar).finding
    assert found.verdict == "broken" and "No space left" in found.reason
    with monkeypatch.context() as patched, pytest.raises(DiskFull):
        patched.setattr(os, "posix_fallocate", full)
        arena.referee.check(liar)
    # nor where the end of the reference makes room
    answers = [True, False]
    monkeypatch.setattr(disk, "is_full", lambda folder: answers.pop(0))
    with Worker(arena.referee.setting, liar, "reference") as reference, pytest.raises(DiskFull):
        reference.ask("build", mode=arena.referee.workload.mode)
        reference.ask("draw", seeds={str(reference.saved("x")): 0}, phase="", shape={}, variant="")
        reference.ask("stage", path=str(reference.saved("x")), constants=[], phase="")
        reference.ask("call", key=1)


def test_a_quota_counts_as_full_and_another_error_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not disk.is_full(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert disk.is_full(tmp_path)
    with pytest.raises(FileNotFoundError):
        disk.is_full(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []
    assert disk.looks_full("disk_full", "", None) and disk.looks_full("died", "", 7)
    assert disk.looks_full("call_raised", "OSError: [Errno 28] No space left on device", None)
    assert not disk.looks_full("call_raised", "ValueError: no", 9)


@pytest.mark.parametrize(
    ("number", "of_the_machine"),
    [
        *((number, True) for number in (errno.ENOSPC, errno.EIO, errno.EMFILE)),
        *((number, False) for number in (errno.ENAMETOOLONG, errno.EACCES, errno.EXDEV, errno.ELOOP, errno.ENOTDIR)),
    ],
)
def test_what_a_worker_can_make_of_its_folder_ends_no_run(number: int, of_the_machine: bool) -> None:
    passed = False
    try:
        with disk.in_the_hands_of_a_worker():
            raise OSError(number, os.strerror(number))
    except OSError:
        passed = True
    assert passed is of_the_machine
