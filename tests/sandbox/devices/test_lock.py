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
from tests.sandbox.devices import machines

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
OTHER = 1_900_000_124
ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from sandbox.devices import lock
from sandbox.devices.record import Gpu
gpu = Gpu("amd", 0, "x", None, {card!r}, 128, (), (), True, {card!r})
held = lock.acquire(gpu, run_id="other-run", folders=[Path(path) for path in {folders!r}])
{then}
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def gpus(tmp_path: Path) -> tuple[Gpu, ...]:
    machines.eight_mi300x(tmp_path / "machine")
    return find_gpus(tmp_path / "machine").gpus


@contextmanager
def holder(gpu: Gpu, *folders: Path, then: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock."""
    code = HOLD.format(root=str(ROOT), card=gpu.card, folders=[str(folder) for folder in folders], then=then)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_lock_is_for_one_card_and_is_given_back(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    folders = [tmp_path / "locks"]
    with acquire(gpus[0], folders=folders) as held:
        assert held.paths == (tmp_path / "locks/amd-0000-05-00.0.lock",)
        with acquire(gpus[1], folders=folders), pytest.raises(DeviceBusy):
            acquire(gpus[0], folders=folders)
    acquire(gpus[0], folders=folders).release()
    held.release()  # again: nothing happens


@pytest.mark.guard("one run a card")
def test_another_process_is_refused_and_told_who_has_it(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    with holder(gpus[0], tmp_path / "locks") as process:
        with pytest.raises(DeviceBusy, match=f"run other-run .process {process.pid}, since 20..-") as caught:
            acquire(gpus[0], folders=[tmp_path / "locks"])
        assert caught.value.exit_status == 33
        assert isinstance(caught.value, SandboxError)
        assert caught.value.hint


def test_a_killed_holder_leaves_nothing_behind(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    with holder(gpus[0], tmp_path / "locks") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with acquire(gpus[0], folders=[tmp_path / "locks"], run_id="mine"):
            says = json.loads(only_file(tmp_path / "locks").read_text())
    assert (says["pid"], says["run"]) == (os.getpid(), "mine")


def test_a_program_that_the_holder_started_does_not_keep_it(
    tmp_path: Path, gpus: tuple[Gpu, ...], until: Callable[..., object]
) -> None:
    started = tmp_path / "started"
    then = f"""
child = subprocess.Popen(["sleep", "600"], close_fds=False)
Path({str(started)!r}).write_text(str(child.pid))
"""
    with holder(gpus[0], tmp_path / "locks", then=then) as process:
        child = int(started.read_text())
        until(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes())  # it has left our code
        process.kill()
        process.wait()
        acquire(gpus[0], folders=[tmp_path / "locks"]).release()
        os.kill(child, signal.SIGKILL)  # it was still there


def test_who_waits_gets_it_when_it_is_free(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    with holder(gpus[0], tmp_path / "locks") as process:
        started = time.monotonic()
        with pytest.raises(DeviceBusy):
            acquire(gpus[0], 0.3, folders=[tmp_path / "locks"])
        assert 0.3 <= time.monotonic() - started < 5
        subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {process.pid}"]).wait()
        acquire(gpus[0], 20, folders=[tmp_path / "locks"]).release()


@pytest.mark.guard("one run a card")
def test_the_dies_of_one_card_cannot_be_timed_at_once(tmp_path: Path) -> None:
    machines.four_mi250(tmp_path / "machine")
    first, second, third = find_gpus(tmp_path / "machine").gpus[:3]
    with acquire(first, folders=[tmp_path / "locks"]):
        with pytest.raises(DeviceBusy):
            acquire(second, folders=[tmp_path / "locks"])
        acquire(third, folders=[tmp_path / "locks"]).release()


def test_everybody_can_lock_whatever_the_umask_was(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    before = os.umask(0o077)
    try:
        acquire(gpus[0], folders=[tmp_path / "locks"]).release()
    finally:
        os.umask(before)
    assert mode(tmp_path / "locks") == 0o1777
    assert mode(only_file(tmp_path / "locks")) == 0o666


def test_who_can_use_one_folder_only_meets_who_uses_both(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    both = (tmp_path / "run", tmp_path / "tmp")
    with holder(gpus[0], tmp_path / "closed/run", both[1]), pytest.raises(DeviceBusy):
        acquire(gpus[0], folders=both)
    with acquire(gpus[0], folders=both) as held, pytest.raises(DeviceBusy):
        assert len(held.paths) == 2
        acquire(gpus[0], folders=both[1:])


def test_half_a_lock_is_given_back(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    with holder(gpus[0], tmp_path / "tmp"):
        with pytest.raises(DeviceBusy):
            acquire(gpus[0], folders=[tmp_path / "run", tmp_path / "tmp"])
        acquire(gpus[0], folders=[tmp_path / "run"]).release()


def test_a_link_in_place_of_the_lock_file_is_not_followed(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    acquire(gpus[0], folders=[tmp_path / "locks"]).release()
    path = only_file(tmp_path / "locks")
    (tmp_path / "precious").write_text("precious")
    for plant in (path.symlink_to, path.hardlink_to):
        path.unlink()
        plant(tmp_path / "precious")
        with pytest.raises(SandboxError, match="no lock can be made"):
            acquire(gpus[0], folders=[tmp_path / "locks"])
        assert (tmp_path / "precious").read_text() == "precious"
        assert mode(tmp_path / "precious") != 0o666
    path.unlink()
    path.symlink_to(tmp_path / "precious")
    inside = os.open(tmp_path / "locks", os.O_RDONLY)
    with pytest.raises(OSError) as caught:
        lock._open(inside, path.name)
    os.close(inside)
    assert caught.value.errno == errno.ELOOP  # it was not even opened
    path.unlink()
    path.symlink_to(tmp_path / "made by a link")
    with pytest.raises(SandboxError, match="no lock can be made"):
        acquire(gpus[0], folders=[tmp_path / "locks"])
    assert not (tmp_path / "made by a link").exists()


@pytest.mark.timeout(20)
def test_a_pipe_or_a_folder_in_its_place_stops_nobody(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    acquire(gpus[0], folders=[tmp_path / "locks"]).release()
    path = only_file(tmp_path / "locks")
    path.unlink()
    for plant in (os.mkfifo, os.mkdir):
        plant(path)
        with pytest.raises(SandboxError, match="no lock can be made"):
            acquire(gpus[0], folders=[tmp_path / "locks"])
        path.rename(tmp_path / plant.__name__)


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "locks").symlink_to("elsewhere")
    with pytest.raises(SandboxError, match="no lock can be made") as caught:
        acquire(gpus[0], folders=[tmp_path / "locks"])
    assert not isinstance(caught.value, DeviceBusy)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert mode(tmp_path / "elsewhere") == 0o700
    with acquire(gpus[0], folders=[tmp_path / "locks", tmp_path / "sound"]) as held:
        assert [path.parent.name for path in held.paths] == ["sound"]


@as_root
def test_a_folder_in_which_another_user_can_replace_files_is_not_used(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks").chmod(0o777)
    os.chown(tmp_path / "locks", OTHER, OTHER)
    with pytest.raises(SandboxError, match="no lock can be made"):
        acquire(gpus[0], folders=[tmp_path / "locks"])
    (tmp_path / "locks").chmod(0o1777)  # as the first user of a machine makes it
    acquire(gpus[0], folders=[tmp_path / "locks"]).release()


@as_root
@pytest.mark.guard("one run a card")
def test_users_meet_in_a_folder_and_in_files_of_each_other(open_folder: Path, gpus: tuple[Gpu, ...]) -> None:
    def as_another(act: Callable[[], object]) -> int:
        """Exit status: 0 when it worked, 33 when the card was busy."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setresgid(OTHER, OTHER, OTHER)
                os.setresuid(OTHER, OTHER, OTHER)
                act()
                status = 0
            except SandboxError as error:
                status = error.exit_status
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    folders = [open_folder / "locks"]
    open_folder.chmod(0o1777)
    assert as_another(lambda: acquire(gpus[0], folders=folders)) == 0
    assert (open_folder / "locks").stat().st_uid == OTHER
    with acquire(gpus[0], folders=folders), acquire(gpus[1], folders=folders):
        assert as_another(lambda: acquire(gpus[0], folders=folders)) == 33
        assert as_another(lambda: acquire(gpus[1], folders=folders)) == 33
    assert as_another(lambda: acquire(gpus[1], folders=folders)) == 0
    file = open_folder / "locks/amd-0000-26-00.0.lock"
    file.chmod(0o644)  # root's, which another user can then only read
    assert as_another(lambda: acquire(gpus[1], folders=folders)) == 0


def test_a_file_that_was_replaced_while_it_was_locked_is_not_taken_for_the_lock(
    tmp_path: Path, gpus: tuple[Gpu, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner of old files removes it after we opened it, and somebody makes it again; the hook is that moment."""
    acquire(gpus[0], folders=[tmp_path / "locks"]).release()
    path, flock, moments = only_file(tmp_path / "locks"), lock.fcntl.flock, iter((path_removed, path_replaced))

    def meanwhile(descriptor: int, operation: int) -> None:
        next(moments, Path.stat)(path)
        flock(descriptor, operation)

    monkeypatch.setattr(lock.fcntl, "flock", meanwhile)
    with acquire(gpus[0], folders=[tmp_path / "locks"]), pytest.raises(DeviceBusy):
        assert next(moments, None) is None
        acquire(gpus[0], folders=[tmp_path / "locks"])


def path_removed(path: Path) -> None:
    path.unlink()


def path_replaced(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.touch()


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
def test_what_a_file_says_of_its_holder_is_shown_with_care(
    written: bytes, shown: str, tmp_path: Path, gpus: tuple[Gpu, ...]
) -> None:
    with acquire(gpus[0], folders=[tmp_path / "locks"]) as held:
        held.paths[0].write_bytes(written)
        with pytest.raises(DeviceBusy, match=shown):
            acquire(gpus[0], folders=[tmp_path / "locks"])


def test_where_the_machine_has_no_place_the_users_own_folder_must_do(
    tmp_path: Path, gpus: tuple[Gpu, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").write_text("no folder")
    nowhere = (tmp_path / "full/a", tmp_path / "full/b")
    with pytest.raises(SandboxError, match=r"no lock can be made in .*full/a or .*full/b"):
        acquire(gpus[0], folders=nowhere)
    monkeypatch.setattr(lock, "FOLDERS", nowhere)
    monkeypatch.setattr(lock.tempfile, "tempdir", str(tmp_path))
    with acquire(gpus[0], folders=lock.FOLDERS) as held:
        assert held.paths == (tmp_path / "ratchet-locks/amd-0000-05-00.0.lock",)


def test_a_folder_reaches_other_containers_where_it_was_mounted(tmp_path: Path) -> None:
    assert not lock.reaches_other_containers([tmp_path / "none", tmp_path])
    assert lock.reaches_other_containers([tmp_path, Path("/proc")])


def test_the_folders_of_the_machine_are_the_same_for_every_user() -> None:
    assert [str(folder) for folder in lock.FOLDERS] == ["/run/lock/ratchet", "/tmp/ratchet-locks"]
