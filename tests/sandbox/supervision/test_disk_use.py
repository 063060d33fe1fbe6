"""A command is charged with what it holds of the disk, and with what others wrote only when nothing else is known."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel import process_tree
from sandbox.supervision import disk_use, held_files
from sandbox.supervision.disk_use import DiskUse
from sandbox.supervision.held_files import Held
from tests.sandbox.supervision.holding import MIB, holder

LIMIT = 64 * MIB
HIDES = """
ends = socket.socketpair()
socket.send_fds(ends[0], [b"x"], [0])
"""
WRITES = """
def write(*_):
    with open(os.path.join(folder, "later"), "wb") as file:
        file.write(os.urandom(8 * MIB))
import signal
signal.signal(signal.SIGUSR1, write)
"""
Until = Callable[..., Any]


def tell(pid: int, number: int, until: Until, folder: Path) -> None:
    os.kill(pid, number)
    until(lambda: (folder / "later").exists() and (folder / "later").stat().st_size == 8 * MIB)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    before = process_tree.written_bytes(os.getpid())
    (tmp_path / "trial").write_bytes(bytes(MIB))
    if process_tree.written_bytes(os.getpid()) == before:
        pytest.skip("this folder is on no disk, or nobody tells what is written to it")
    return tmp_path / "folder"


def test_what_is_there_at_the_first_look_is_counted(folder: Path) -> None:
    use = DiskUse([str(folder)])
    with (folder / "held").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MIB)
    assert use.taken(LIMIT, []) >= 8 * MIB


def test_what_grows_slowly_is_counted_within_a_second_or_so(folder: Path, until: Until) -> None:
    use = DiskUse([str(folder)])
    assert use.taken(LIMIT, []) < MIB
    (folder / "held").write_bytes(os.urandom(2 * MIB))
    assert not use.busy
    until(lambda: use.taken(LIMIT, []) >= 2 * MIB, patience_s=3.0)


def test_it_is_counted_though_others_free_more_than_it_takes(folder: Path, until: Until) -> None:
    other = folder.parent / "other"
    other.write_bytes(os.urandom(16 * MIB))
    os.sync()
    use = DiskUse([str(folder)])
    use.taken(LIMIT, [])
    (folder / "held").write_bytes(os.urandom(8 * MIB))
    other.unlink()
    until(lambda: use.taken(LIMIT, []) >= 8 * MIB, patience_s=3.0)


def test_while_files_are_hidden_what_others_write_is_not_charged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    with holder(folder, HIDES + WRITES + "ready()") as pids:
        use = DiskUse([str(folder)])
        use.taken(LIMIT, pids)
        (folder.parent / "other").write_bytes(os.urandom(32 * MIB))
        os.sync()
        assert use.taken(LIMIT, pids) < MIB
        monkeypatch.setattr(disk_use, "_PATIENCE_S", 0.0)
        assert use.taken(LIMIT, pids) >= 16 * MIB


def test_while_files_are_hidden_what_it_writes_is_charged(folder: Path, until: Until) -> None:
    with holder(folder, HIDES + WRITES + "ready()") as pids:
        use = DiskUse([str(folder)])
        use.taken(LIMIT, pids)
        tell(pids[0], signal.SIGUSR1, until, folder)
        (folder / "later").unlink()
        assert 8 * MIB <= use.taken(LIMIT, pids) < 16 * MIB


def test_what_a_process_that_ended_has_written_is_remembered(folder: Path, until: Until) -> None:
    with holder(folder, HIDES + "ready()") as hiding:
        use = DiskUse([str(folder)])
        with holder(folder, WRITES + "ready()") as writing:
            use.taken(LIMIT, [*hiding, *writing])
            tell(writing[0], signal.SIGUSR1, until, folder)
            use.taken(LIMIT, [*hiding, *writing])
        (folder / "later").unlink()
        assert use.taken(LIMIT, hiding) >= 8 * MIB


def test_after_a_complete_count_nothing_is_charged_that_is_not_held(folder: Path, until: Until) -> None:
    with holder(folder, HIDES + WRITES + "signal.signal(signal.SIGUSR2, lambda *_: ends[1].recv(1))\nready()") as pids:
        use = DiskUse([str(folder)])
        tell(pids[0], signal.SIGUSR1, until, folder)
        (folder / "later").unlink()
        assert use.taken(LIMIT, pids) >= 8 * MIB
        os.kill(pids[0], signal.SIGUSR2)
        until(lambda: use.taken(LIMIT, pids) < MIB, patience_s=3.0)


def test_where_it_is_not_told_what_it_wrote_the_disk_s_loss_is_charged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "written_bytes", lambda pid: None)
    with holder(folder, HIDES + "ready()") as pids:
        use = DiskUse([str(folder)])
        use.taken(LIMIT, pids)
        (folder.parent / "other").write_bytes(os.urandom(32 * MIB))
        os.sync()
        assert use.taken(LIMIT, pids) >= 16 * MIB


def test_a_count_that_took_long_is_followed_by_a_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    counts = []

    def slow(*_: Any, **__: Any) -> Held:
        time.sleep(0.05)
        counts.append(time.monotonic())
        return Held(0, False)

    monkeypatch.setattr(held_files, "count", slow)
    use = DiskUse([str(folder)])
    until(lambda: use.taken(LIMIT, []) == 0 and len(counts) == 2)
    assert counts[1] - counts[0] >= 10 * 0.05
