"""What a tree of processes holds on the disk is found, or the count says that it is not of everything."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.supervision.held_files import ENTRY_BYTES, count
from tests.sandbox.supervision.holding import MIB, NOBODY, holder, in_child

LONG_S = 30.0
REGISTERED = """
ring = libc.syscall(425, 8, (ctypes.c_char * 120)())
file = hold(b"\\xff".decode(errors="surrogateescape")) if {named} else hold()
if ring < 0 or libc.syscall(427, ring, 2, (ctypes.c_int * 1)(file), 1) < 0:
    print("no", flush=True)
    sys.exit()
os.close(file)
ready()
"""
SENT = """
ends = socket.socketpair()
socket.send_fds(ends[0], [b"x"], [hold()])
ready()
"""
LATE = """
def late():
    libc.unshare(0x400)
    time.sleep(0.2)
    file = hold()
    ready()
threading.Thread(target=late).start()
libc.syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""
MAPPED = """
libc.mmap.restype = ctypes.c_ssize_t
file = hold()
assert libc.mmap(None, ctypes.c_size_t(4096), 1, 1, file, ctypes.c_long(0)) != -1
os.close(file)
"""
BESIDE = """
def beside():
    assert libc.unshare(0x400) == 0
    file = hold()
    ready()
threading.Thread(target=beside).start()
"""


def held(folder: Path, pids: list[int], within_s: float = LONG_S) -> tuple[int, bool]:
    return count([str(folder)], pids, within_s)


def test_a_file_counts_once_however_many_names_and_descriptors_it_has(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(os.urandom(4 * MIB))
    os.link(tmp_path / "one", tmp_path / "two")
    with holder(tmp_path, "file = os.open(os.path.join(folder, 'one'), os.O_RDONLY)\nready()") as pids:
        found, complete = held(tmp_path, pids)
    assert 4 * MIB <= found < 5 * MIB
    assert complete


def test_the_same_folder_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one").write_bytes(os.urandom(4 * MIB))
    assert count([str(tmp_path), str(tmp_path / "inner")], [], LONG_S).held_bytes < 5 * MIB


def test_empty_files_and_folders_count(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"file{number}").touch()
        (tmp_path / f"folder{number}").mkdir()
    assert held(tmp_path, [])[0] >= 200 * ENTRY_BYTES


@pytest.mark.parametrize("code", ["file = hold()\nready()", BESIDE, LATE], ids=["plain", "own table", "no leader"])
def test_a_file_without_a_name_counts(code: str, tmp_path: Path) -> None:
    with holder(tmp_path, code) as pids:
        found, complete = held(tmp_path, pids)
    assert 4 * MIB <= found < 5 * MIB
    assert complete


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what is mapped")
def test_a_file_that_is_only_mapped_counts(tmp_path: Path) -> None:
    with holder(tmp_path, MAPPED + "ready()") as pids:
        found, complete = held(tmp_path, pids)
    assert 4 * MIB <= found < 5 * MIB
    assert complete


def test_a_file_that_is_only_mapped_by_threads_without_a_leader_is_noticed(tmp_path: Path) -> None:
    with holder(tmp_path, MAPPED + LATE.replace("file = hold()", "pass")) as pids:
        assert not held(tmp_path, pids)[1]


def test_a_program_without_a_name_counts(tmp_path: Path) -> None:
    code = """
import shutil
program = os.path.join(folder, "program")
shutil.copy("/bin/sleep", program)
with open(program, "ab") as file: file.write(os.urandom(4 * MIB))
child = os.fork()
if child == 0:
    os.execv(program, ["sleep", "600"])
while os.readlink(f"/proc/{child}/exe") != program: time.sleep(0.01)
os.unlink(program)
ready()
"""
    with holder(tmp_path, code) as pids:
        assert held(tmp_path, pids)[0] >= 4 * MIB


@pytest.mark.parametrize("code", ["file = os.memfd_create('')", "file = os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)"])
def test_memory_is_no_disk(code: str, tmp_path: Path) -> None:
    with holder(tmp_path, f"{code}\nos.write(file, bytes(4 * MIB))\nready()") as pids:
        found, complete = held(tmp_path, pids)
    assert found < MIB
    assert complete


def test_a_file_whose_name_came_after_the_names_were_looked_at_counts(tmp_path: Path) -> None:
    """As when it is given one while descriptors are looked at, and loses it while names are."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "beside").write_bytes(os.urandom(4 * MIB))
    with holder(tmp_path, "file = os.open(os.path.join(folder, 'beside'), os.O_RDONLY)\nready()") as pids:

        def late() -> Iterator[int]:
            (tmp_path / "beside").rename(folder / "held")
            yield from pids

        assert count([str(folder)], pids, LONG_S).held_bytes < MIB
        assert count([str(folder)], late(), LONG_S).held_bytes >= 4 * MIB


def test_a_file_on_its_way_between_processes_is_noticed(tmp_path: Path) -> None:
    with holder(tmp_path, SENT) as pids:
        assert not held(tmp_path, pids)[1]


@pytest.mark.parametrize("named", [False, True], ids=["", "of an odd name"])
def test_a_file_that_only_a_ring_keeps_is_noticed(named: bool, tmp_path: Path) -> None:
    try:
        with holder(tmp_path, REGISTERED.format(named=named)) as pids:
            assert not held(tmp_path, pids)[1]
    except AssertionError:
        if ctypes.CDLL(None).syscall(425, 8, (ctypes.c_char * 120)()) < 0:
            pytest.skip("there is no io_uring here")
        raise


def test_a_ring_that_keeps_nothing_is_no_matter(tmp_path: Path) -> None:
    with holder(tmp_path, "ring = libc.syscall(425, 8, (ctypes.c_char * 120)())\nready()") as pids:
        assert held(tmp_path, pids)[1]


def test_a_count_that_has_no_time_says_so_and_gives_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(os.urandom(4 * MIB))
    code = "for _ in range(900): os.dup(0)\nfor _ in range(100):\n    if os.fork() == 0: time.sleep(600)\nready()"
    with holder(tmp_path, code) as pids:
        started_s = time.monotonic()
        found, complete = held(tmp_path, pids, within_s=0.05)
        assert time.monotonic() - started_s < 0.5
    assert found >= 4 * MIB
    assert not complete


def test_what_we_may_not_look_at_is_noticed(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    own = tmp_path / "own"
    own.mkdir()
    own.chmod(0o777)

    def look() -> list[bool]:
        complete = [held(own, [])[1]]
        for mode in (0o300, 0o400):
            (own / str(mode)).mkdir()
            (own / str(mode) / "file").touch()
            (own / str(mode)).chmod(mode)
            complete.append(held(own, [])[1])
            (own / str(mode)).chmod(0o700)
        complete += [held(own, [child])[1] for child in (sleeper(dumpable=True), sleeper(dumpable=False))]
        return complete

    assert in_child(look, uid=NOBODY if os.geteuid() == 0 else None) == [True, False, False, True, False]


def sleeper(*, dumpable: bool) -> int:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(4, int(dumpable), 0, 0, 0)
        os.write(theirs, b"x")
        time.sleep(2)
        os._exit(0)
    os.read(ours, 1)
    return child


def test_a_file_that_waits_for_the_agent_in_its_end_of_the_channel_is_noticed(tmp_path: Path) -> None:
    path, folder = tmp_path / "channel", tmp_path / "folder"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as guest:
        queue = f"/proc/{os.getpid()}/fdinfo/{listener.fileno()}"

        def complete() -> bool:
            return count([str(folder)], [], LONG_S, queue=queue).complete

        listener.bind(str(path))
        listener.listen(1)
        guest.connect(str(path))
        assert complete()
        socket.send_fds(guest, [b"x"], [0])
        assert not complete()  # though nobody has accepted it
        with listener.accept()[0] as accepted:
            os.dup2(accepted.fileno(), listener.fileno(), inheritable=False)
            assert not complete()
            accepted.recv(1)
            assert complete()


def test_a_queue_that_we_may_not_look_at_is_left_out(tmp_path: Path) -> None:
    assert count([str(tmp_path)], [], LONG_S, queue="/proc/1/fdinfo/4000").complete
