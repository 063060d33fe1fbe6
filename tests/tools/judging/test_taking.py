"""What a worker has written is taken over as bytes: whatever it makes of its files, then or later, stays its own."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tests.tools.judging.conftest import VALUES, one_tensor
from tools.judging import taking, tensors
from tools.judging.tensors import BadTensorFile


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder of a worker."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_file_becomes_one_of_ours_and_the_workers_is_gone(out: Path, tmp_path: Path) -> None:
    source, before = one_tensor(out / "x"), (out / "x").read_bytes()
    source.chmod(0o4777)
    taken = taking.take(source, tmp_path / "taken")
    assert taken.read_bytes() == before and not source.exists()
    assert (stat.S_IMODE(taken.stat().st_mode), taken.stat().st_uid) == (0o444, os.geteuid())
    assert bytes(tensors.read(taken).leaves[0].raw) == VALUES


def test_a_descriptor_that_a_worker_keeps_changes_nothing_of_ours(out: Path, tmp_path: Path) -> None:
    source = one_tensor(out / "x")
    kept = os.open(source, os.O_RDWR)
    try:
        before = taking.take(source, tmp_path / "taken").read_bytes()
        os.pwrite(kept, b"other", len(before) - 16)
        os.fchmod(kept, 0o777)
        os.ftruncate(kept, 3)
    finally:
        os.close(kept)
    assert (tmp_path / "taken").read_bytes() == before
    assert stat.S_IMODE((tmp_path / "taken").stat().st_mode) == 0o444


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder", "nothing", "folder that is a link"])
def test_what_is_no_file_of_its_own_is_not_taken_and_not_touched(kind: str, out: Path, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    victim = one_tensor(tmp_path / "host" / "x")
    victim.chmod(0o600)
    if kind == "link":
        (out / "x").symlink_to(victim)
    elif kind == "second name":
        os.link(victim, out / "x")
    elif kind == "pipe":
        os.mkfifo(out / "x")
    elif kind == "folder":
        (out / "x").mkdir()
    elif kind == "folder that is a link":
        out.rmdir()
        out.symlink_to(tmp_path / "host")
    for copy in (taking.take, taking.show):
        with pytest.raises(BadTensorFile):
            copy(out / "x", tmp_path / "taken")
    assert not (tmp_path / "taken").exists()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600 and victim.read_bytes().endswith(VALUES)


def test_a_file_is_copied_without_the_kernel(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(*_: int) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    before = one_tensor(out / "x", count=1 << 22, values=os.urandom(1 << 24)).read_bytes()
    monkeypatch.setattr(os, "copy_file_range", elsewhere)
    assert taking.take(out / "x", tmp_path / "taken").read_bytes() == before


def test_nothing_that_is_there_is_written_over(out: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for name in ("mine", "link"):
        with pytest.raises(FileExistsError):
            taking.take(one_tensor(out / "x"), tmp_path / name)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_of_another_length_than_its_header_says_is_not_copied(out: Path, tmp_path: Path) -> None:
    source = one_tensor(out / "x")
    os.truncate(source, 1 << 42)
    for read in (tensors.read, lambda path: taking.show(path, tmp_path / "taken")):
        with pytest.raises(BadTensorFile, match="bytes whose header speaks of"):
            read(source)
        with pytest.raises(BadTensorFile):
            read(one_tensor(out / "short", count=1 << 40))
    assert not (tmp_path / "taken").exists()


def test_the_copy_of_a_file_of_holes_takes_no_more_of_the_disk_than_it_does(out: Path, tmp_path: Path) -> None:
    source = one_tensor(out / "x", count=1 << 28)
    with source.open("r+b") as file:
        file.truncate(source.stat().st_size - 16 + (4 << 28))
        file.seek(1 << 29)
        file.write(b"in the middle")
    copy = taking.show(source, tmp_path / "copy").stat()
    assert copy.st_size == source.stat().st_size > 1 << 30
    assert copy.st_blocks * 512 < 1 << 20
    assert b"in the middle" in bytes(tensors.read(tmp_path / "copy").leaves[0].data[(1 << 29) - 4096 : (1 << 29) + 64])
    with (tmp_path / "copy").open("rb") as one, source.open("rb") as other:
        assert one.read(1 << 20) == other.read(1 << 20)


def test_a_file_that_is_cut_short_after_it_was_opened_is_malformed_and_ends_nobody(out: Path) -> None:
    source = one_tensor(out / "x", count=1 << 18, values=bytes(1 << 20))
    leaf = tensors.read(source).leaves[0]
    os.truncate(source, 4096)
    for use in (lambda: leaf.raw, lambda: leaf.as_float(1 << 17, 1 << 18), lambda: leaf.same_bytes(leaf)):
        with pytest.raises(BadTensorFile, match="shorter"):
            use()
    assert not leaf.as_float(0, 8).any()
    before = tensors.read(one_tensor(out / "y"))
    (out / "y").unlink()
    one_tensor(out / "y", values=bytes(16))
    assert bytes(before.leaves[0].raw) == VALUES, "nothing that is put in its place is read"
