"""Count the bytes that a tree of processes holds on the disk: files by their names, and those held without one.

Refuses to take longer than it is given, and to pass over what it cannot see: a count says whether it is of everything.
Standard library only: it runs inside supervisors.

What nothing tells of, and is not counted: a file that only a ring of io_uring without a descriptor, a request under
way, or a ruleset of Landlock still holds; one that is moved between folders exactly while these are looked at; one
that is mapped without a descriptor, unless we are root; and what is held by a kernel before 5.6 in a socket's queue.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sandbox.kernel import process_tree

ENTRY_BYTES = 4096  # the least that a file or a folder counts: it takes an inode, and a place in a folder
_DEEPEST = 64  # folders in one another that are looked into
_CLOCK_NS = 20_000_000  # the kernel's times of files are up to a tick older than ours
_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_FILES = 2
_IN_MEMORY = (b"tmpfs", b"ramfs", b"devtmpfs", b"hugetlbfs")
_libc = ctypes.CDLL(None, use_errno=True)


class Held(NamedTuple):
    """`complete` is false when there is more, which could not be seen, or not in time."""

    held_bytes: int
    complete: bool


class _OutOfTime(Exception):
    """The count is not finished."""


def count(folders: Iterable[str], pids: Iterable[int], within_s: float, *, queue: str | None = None) -> Held:
    """What lies in these folders, and what these processes hold of files that have no name any more.

    `queue` is where the kernel tells of a socket that is none of theirs (`/proc/<pid>/fdinfo/<descriptor>`): what they
    have sent there, and nobody has received, is held by nobody else.
    """
    counting = _Count(time.monotonic() + within_s)
    with contextlib.suppress(_OutOfTime):
        for folder in folders:
            counting.folder(folder)
        for pid in pids:
            counting.process(pid)
        if queue is not None:
            counting.queue(queue)
        return Held(sum(counting.sizes.values()), counting.complete)
    return Held(sum(counting.sizes.values()), False)


class _Count:
    def __init__(self, deadline: float) -> None:
        self.sizes: dict[tuple[int, int], int] = {}  # each file once, however many names and descriptors it has
        self.complete = True
        self._deadline, self._started_ns = deadline, time.time_ns() - _CLOCK_NS
        self._devices: set[int] = set()  # that files by their names are on
        self._in_memory: set[int] = {_device_of_memory()}
        self._mounts: set[str] = set()  # the namespaces that have been looked into

    def folder(self, name: str, parent: int | None = None, levels: int = _DEEPEST) -> None:
        """All below it, links not followed."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if parent is None else os.O_NOFOLLOW)
        try:
            descriptor = os.open(name, flags, dir_fd=parent)  # by steps: a whole path may be longer than a path can be
        except OSError as error:
            self._notice(error)
            return
        try:
            self._add(os.fstat(descriptor))
            with os.scandir(descriptor) as inside:
                for entry in self._in_time(inside):
                    self._entry(entry, descriptor, levels)
        except OSError as error:
            self._notice(error)
        finally:
            os.close(descriptor)

    def _entry(self, entry: os.DirEntry[str], parent: int, levels: int) -> None:
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._notice(error)
            return
        self._add(facts)
        if stat.S_ISDIR(facts.st_mode) and levels > 0:
            self.folder(entry.name, parent, levels - 1)
        elif stat.S_ISDIR(facts.st_mode):
            self.complete = False

    def process(self, pid: int) -> None:
        """All that it holds open or mapped."""
        found = process_tree.stat(pid)
        if found is None or not found.alive:
            return
        self._learn_mounts(pid)
        with contextlib.suppress(OSError):
            self._add_if_hidden(os.stat(f"/proc/{pid}/exe"))
        for tid in self._threads_with_own_descriptors(pid):
            self._descriptors(f"/proc/{pid}/task/{tid}")
        self._mapped(pid, shown=found.state != "Z")

    def queue(self, told: str) -> None:
        with contextlib.suppress(OSError):  # where we may not look at the agent nothing is known of it
            self._must_be_zero(told, b"scm_fds:", told_always=False)

    def _in_time(self, entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            self._check_time()
            yield entry

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise _OutOfTime

    def _notice(self, error: OSError) -> None:
        """What is gone, or another by now, holds nothing; what we may not look at does."""
        if error.errno not in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ELOOP):
            self.complete = False

    def _add(self, facts: os.stat_result) -> None:
        self._devices.add(facts.st_dev)
        self.sizes[facts.st_dev, facts.st_ino] = max(512 * facts.st_blocks, ENTRY_BYTES)

    def _add_if_hidden(self, facts: os.stat_result) -> None:
        """A file that is open or mapped and has no name, or had another when the names were looked at."""
        device, number = facts.st_dev, facts.st_ino
        if (device, number) in self.sizes or stat.S_IFMT(facts.st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            return
        if facts.st_nlink == 0:
            hidden = device in self._devices or device not in self._in_memory
        else:
            hidden = device in self._devices and facts.st_ctime_ns >= self._started_ns
        if hidden:
            self.sizes[device, number] = max(512 * facts.st_blocks, ENTRY_BYTES)

    def _descriptors(self, task: str) -> None:
        try:
            with os.scandir(f"{task}/fd") as inside:
                for entry in self._in_time(inside):
                    self._descriptor(task, entry.name)
        except OSError as error:
            self._notice(error)

    def _descriptor(self, task: str, number: str) -> None:
        path, told = f"{task}/fd/{number}", f"{task}/fdinfo/{number}"
        try:
            facts = os.stat(path)
            kind = stat.S_IFMT(facts.st_mode)
            if kind == stat.S_IFSOCK:
                self._must_be_zero(told, b"scm_fds:", told_always=False)
            elif kind == 0 and os.readlink(path) == "anon_inode:[io_uring]":
                self._must_be_zero(told, b"UserFiles:", told_always=True)  # it is not while the ring is at work
            else:
                self._add_if_hidden(facts)
        except OSError as error:
            self._notice(error)

    def _must_be_zero(self, path: str, name: bytes, *, told_always: bool) -> None:
        """How many descriptors are on their way through a socket, or are kept by a ring: nobody sees what of."""
        with open(path, "rb") as file:
            words = file.read(1 << 16).split()  # a ring tells of all that it keeps, which may be long
        told = words[words.index(name) + 1] if name in words[:-1] else None
        if told != b"0" and (told_always or told is not None):
            self.complete = False

    def _threads_with_own_descriptors(self, pid: int) -> Iterator[int]:
        """One for each table of descriptors: threads may give up sharing one, and the first may have ended."""
        different: list[int] = []
        for tid in process_tree.threads(pid):
            self._check_time()
            if not any(_share_descriptors(tid, other) for other in different):
                different.append(tid)
                yield tid

    def _mapped(self, pid: int, *, shown: bool) -> None:
        """Found by the kernel's word that a name is gone: to look at all that is mapped takes 10 ms for each process.

        Where the first thread has ended those that run on still tell of them, but they are not `shown` any more.
        """
        told = (_lines(f"/proc/{pid}/task/{tid}/maps") for tid in process_tree.threads(pid))
        for line in next(filter(None, told), []):
            self._check_time()
            if not line.endswith(b" (deleted)"):
                continue
            place, _, _, device, _ = line.split(None, 4)
            major, _, minor = device.partition(b":")
            if os.makedev(int(major, 16), int(minor, 16)) in self._in_memory - self._devices:
                continue
            if not shown:
                self.complete = False
            with contextlib.suppress(OSError):  # only root may look at them
                first, _, last = place.partition(b"-")
                self._add_if_hidden(os.stat(f"/proc/{pid}/map_files/{int(first, 16):x}-{int(last, 16):x}"))

    def _learn_mounts(self, pid: int) -> None:
        """What files without a name lie in memory: they count as memory, and no disk is filled by them."""
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
        except OSError:
            return
        if namespace in self._mounts:
            return
        self._mounts.add(namespace)
        for line in _lines(f"/proc/{pid}/mountinfo"):
            before, _, after = line.partition(b" - ")
            if after.split(b" ", 1)[0] in _IN_MEMORY:
                major, _, minor = before.split(b" ", 3)[2].partition(b":")
                self._in_memory.add(os.makedev(int(major), int(minor)))


def _lines(path: str) -> list[bytes]:
    try:
        return Path(path).read_bytes().splitlines()
    except OSError:  # gone, or closed to us
        return []


def _device_of_memory() -> int:
    """Of files that are only memory: of `memfd_create`, of System V, of mappings shared with children."""
    descriptor = os.memfd_create("")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _share_descriptors(one: int, other: int) -> bool:
    """Where the kernel does not tell they may not, and both are looked at."""
    if _KCMP is None:
        return False
    return _libc.syscall(_KCMP, one, other, _KCMP_FILES, ctypes.c_ulong(0), ctypes.c_ulong(0)) == 0
