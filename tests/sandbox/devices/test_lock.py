"""A card is timed on by one run at a time, whatever happens to that run and whatever others put into the folder."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.devices import lock
from sandbox.devices.gpus import find_gpus
from sandbox.devices.lock import acquire
from sandbox.devices.record import Gpu
from sandbox.errors import DeviceBusy, SandboxError
from tests.sandbox.conftest import as_root, until
from tests.sandbox.devices import machines
from tests.sandbox.devices.conftest import OTHER

ROOT = Path(__file__).resolve().parents[3]
FIRST, SECOND = (machines.gpu(card=f"0000:{bus}:00.0", name="X") for bus in ("05", "26"))
HOLD = """
import subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from sandbox.devices import lock
from tests.sandbox.devices import machines
held = lock.acquire(machines.gpu(card={card!r}), run_id="other-run", folders=[Path(path) for path in {folders!r}])
{then}
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def file(locks: Path) -> Path:
    """The lock file of the first card, which nobody holds."""
    acquire(FIRST, folders=[locks]).release()
    (path,) = locks.iterdir()
    return path


@contextmanager
def holder(*folders: Path, then: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock of the first card."""
    code = HOLD.format(root=str(ROOT), card=FIRST.card, folders=[str(folder) for folder in folders], then=then)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refused(*folders: Path) -> SandboxError:
    with pytest.raises(SandboxError, match="no lock can be made") as caught:
        acquire(FIRST, folders=folders)
    return caught.value


def is_busy(gpu: Gpu, *folders: Path) -> bool:
    try:
        acquire(gpu, folders=folders).release()
    except DeviceBusy as busy:
        assert busy.exit_status == 33 and busy.hint
        return True
    return False


def test_a_lock_is_for_one_card_is_given_back_and_everybody_can_make_it_whatever_the_umask(locks: Path) -> None:
    before = os.umask(0o077)
    try:
        with acquire(FIRST, folders=[locks]) as held:
            assert held.paths == (locks / "amd-0000-05-00.0.lock",)
            assert (mode(locks), mode(held.paths[0])) == (0o1777, 0o666)
            assert is_busy(FIRST, locks) and not is_busy(SECOND, locks)
    finally:
        os.umask(before)
    assert not is_busy(FIRST, locks)
    held.release()  # again: nothing happens


@pytest.mark.guard("one run a card")
def test_another_process_is_refused_told_who_has_it_and_let_in_after_a_kill(locks: Path) -> None:
    with holder(locks) as process:
        with pytest.raises(DeviceBusy, match=f"run other-run .process {process.pid}, since 20..-"):
            acquire(FIRST, folders=[locks])
        process.send_signal(signal.SIGKILL)
        process.wait()
        with acquire(FIRST, folders=[locks], run_id="mine") as held:
            says = json.loads(held.paths[0].read_text())
    assert (says["pid"], says["run"]) == (os.getpid(), "mine")


def test_a_program_that_the_holder_started_does_not_keep_it(locks: Path) -> None:
    started = locks.with_name("started")
    child = 'child = subprocess.Popen(["sleep", "600"], close_fds=False)\n'
    with holder(locks, then=f"{child}Path({str(started)!r}).write_text(str(child.pid))") as process:
        pid = int(started.read_text())
        until(lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())  # it has left our code
        process.kill()
        process.wait()
        assert not is_busy(FIRST, locks)
        os.kill(pid, signal.SIGKILL)  # it was still there


def test_who_waits_gets_it_when_it_is_free(locks: Path) -> None:
    with holder(locks) as process:
        started = time.monotonic()
        with pytest.raises(DeviceBusy):
            acquire(FIRST, 0.3, folders=[locks])
        assert 0.3 <= time.monotonic() - started < 5
        subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {process.pid}"]).wait()
        acquire(FIRST, 20, folders=[locks]).release()


@pytest.mark.guard("one run a card")
def test_the_dies_of_one_card_cannot_be_timed_at_once(locks: Path, tmp_path: Path) -> None:
    machines.four_mi250(tmp_path / "machine")
    first, second, third = find_gpus(tmp_path / "machine").gpus[:3]
    with acquire(first, folders=[locks]):
        assert is_busy(second, locks) and not is_busy(third, locks)


def test_who_can_use_one_folder_only_meets_who_uses_both_and_half_a_lock_is_given_back(tmp_path: Path) -> None:
    both = (tmp_path / "run", tmp_path / "tmp")
    with holder(tmp_path / "closed/run", both[1]):
        assert is_busy(FIRST, *both)
        assert not is_busy(FIRST, both[0])
    with acquire(FIRST, folders=both) as held:
        assert len(held.paths) == 2 and is_busy(FIRST, both[1])


@pytest.mark.timeout(20)
def test_whatever_lies_in_place_of_the_lock_file_is_neither_followed_nor_waited_for(
    locks: Path, file: Path, tmp_path: Path
) -> None:
    precious, absent = tmp_path / "precious", tmp_path / "absent"
    precious.write_text("precious")
    links = ((file.hardlink_to, precious), (file.symlink_to, precious), (file.symlink_to, absent))
    for plant, given in (*links, (os.mkfifo, file), (os.mkdir, file)):
        file.unlink()
        plant(given)
        refused(locks)
        assert precious.read_text() == "precious" and mode(precious) != 0o666 and not absent.exists()
    file.rmdir()
    file.symlink_to(precious)
    inside = os.open(locks, os.O_RDONLY)
    with pytest.raises(OSError) as caught:
        lock._open(inside, file.name)
    os.close(inside)
    assert caught.value.errno == errno.ELOOP  # it was not even opened


def test_a_link_in_place_of_the_folder_is_not_followed(locks: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    locks.symlink_to("elsewhere")
    assert not isinstance(refused(locks), DeviceBusy)
    assert not list(elsewhere.iterdir()) and mode(elsewhere) == 0o700
    with acquire(FIRST, folders=[locks, tmp_path / "sound"]) as held:
        assert [path.parent.name for path in held.paths] == ["sound"]


@as_root
def test_a_folder_in_which_another_user_can_replace_files_is_not_used(locks: Path) -> None:
    locks.mkdir()
    locks.chmod(0o777)
    os.chown(locks, OTHER, OTHER)
    refused(locks)
    locks.chmod(0o1777)  # as the first user of a machine makes it
    assert not is_busy(FIRST, locks)


@as_root
@pytest.mark.guard("one run a card")
def test_users_meet_in_a_folder_and_in_files_of_each_other(
    open_folder: Path, as_another_user: Callable[[Callable[[], str]], str]
) -> None:
    def busy_for_another(gpu: Gpu) -> bool:
        said = as_another_user(lambda: f"{is_busy(gpu, locks)}")
        assert said in ("True", "False")
        return said == "True"

    locks = open_folder / "locks"
    open_folder.chmod(0o1777)
    assert not busy_for_another(FIRST)
    assert locks.stat().st_uid == OTHER
    with acquire(FIRST, folders=[locks]), acquire(SECOND, folders=[locks]):
        assert busy_for_another(FIRST) and busy_for_another(SECOND)
    assert not busy_for_another(SECOND)
    (locks / "amd-0000-26-00.0.lock").chmod(0o644)  # root's, which another user can then only read
    assert not busy_for_another(SECOND)


def test_a_file_that_was_replaced_while_it_was_locked_is_not_taken_for_the_lock(
    locks: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner of old files removes it after we opened it, and somebody makes it again; the hook is that moment."""

    def replace(path: Path) -> None:
        path.rename(path.with_suffix(".old"))
        path.touch()

    flock, moments = lock.fcntl.flock, iter((Path.unlink, replace))

    def meanwhile(descriptor: int, operation: int) -> None:
        next(moments, Path.stat)(file)
        flock(descriptor, operation)

    monkeypatch.setattr(lock.fcntl, "flock", meanwhile)
    with acquire(FIRST, folders=[locks]):
        assert next(moments, None) is None
        assert is_busy(FIRST, locks)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"", "in use by another process$"),
        (b"\xff\x00", "in use by another process$"),
        (b"[" * 4000, "in use by another process$"),
        (b'{"pid": null}', r"another run \(process \?, since \?\)"),
        (b'{"run": "\\u001b[2Jx\\n", "pid": 7, "since": "now"}', r"run \[2Jx \(process 7, since now\)"),
        (b'{"run": "' + b"y" * 3000 + b'"}', "run y{80} "),
    ],
)
def test_what_a_file_says_of_its_holder_is_shown_with_care(written: bytes, shown: str, locks: Path) -> None:
    with acquire(FIRST, folders=[locks]) as held:
        held.paths[0].write_bytes(written)
        with pytest.raises(DeviceBusy, match=shown):
            acquire(FIRST, folders=[locks])


def test_where_the_machine_has_no_place_the_users_own_folder_must_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [str(folder) for folder in lock.FOLDERS] == ["/run/lock/ratchet", "/tmp/ratchet-locks"]  # every user's
    (tmp_path / "full").write_text("no folder")
    nowhere = (tmp_path / "full/a", tmp_path / "full/b")
    assert "full/a or " in refused(*nowhere).message
    monkeypatch.setattr(lock, "FOLDERS", nowhere)
    monkeypatch.setattr(lock.tempfile, "tempdir", str(tmp_path))
    with acquire(FIRST, folders=lock.FOLDERS) as held:
        assert held.paths == (tmp_path / "ratchet-locks/amd-0000-05-00.0.lock",)


def test_a_folder_reaches_other_containers_where_it_was_mounted(tmp_path: Path) -> None:
    assert not lock.reaches_other_containers([tmp_path / "none", tmp_path])
    assert lock.reaches_other_containers([tmp_path, Path("/proc")])
