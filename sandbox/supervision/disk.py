"""Watch what a command takes of the disk: the files in its writable folders, and what it leaves free.

The walk counts files by their names. What has no name (a deleted file that a descriptor, a mapping or a message
holds), lies in a folder that we may not read, or is not reached in time is met by the floor alone. Standard library
only: it runs inside supervisors.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from typing import NamedTuple

ENTRY_BYTES = 4096  # the least that a file or a folder counts: it takes an inode, and a place in a folder
_INODE_BYTES = 16384  # ext4 makes one inode for so many bytes
_WALK_S = 0.4  # the longest walk: other limits, and the wish to stop, are looked at between two
_REST = 10  # times as long as a walk took until the next
_CALM_S = 1.0  # between two walks while the disk fills slowly
_FAST = 1 / 16  # of the limit, since the last walk: fast
_DEEPEST = 64  # folders in one another that are walked


class Room(NamedTuple):
    """What a user may still take of a file system."""

    free_bytes: int
    free_inodes: int | None  # None where it counts none

    def below(self, floor_bytes: int) -> bool:
        inodes_bytes = floor_bytes if self.free_inodes is None else self.free_inodes * _INODE_BYTES
        return min(self.free_bytes, inodes_bytes) < floor_bytes

    def taken_until(self, later: Room) -> int:
        inodes = (self.free_inodes or 0) - (later.free_inodes or 0)
        return self.free_bytes - later.free_bytes + ENTRY_BYTES * inodes


def room(folder: str) -> Room | None:
    """Of the file system of this folder; None where it does not tell."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    if found.f_blocks == 0:
        return None
    return Room(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


class DiskWatch:
    """`most_bytes` for the files in `folders` together, None for no limit; `floor_bytes` is to stay free of each disk.

    Between two looks a command can write as fast as the disk takes it.
    """

    def __init__(self, folders: Iterable[str], most_bytes: int | None, floor_bytes: int) -> None:
        self._folders, self._most, self._floor = list(folders), most_bytes, floor_bytes
        self._at_walk: list[Room | None] | None = None
        self._not_before_s = self._calm_until_s = 0.0
        self.busy = False  # the disk has been filling fast since the last walk

    def broken(self) -> bool:
        now = [room(folder) for folder in self._folders]
        if any(each is not None and each.below(self._floor) for each in now):
            return True
        return self._most is not None and self._is_due(now) and self._walked(now) > self._most

    def _is_due(self, now: list[Room | None]) -> bool:
        now_s, before = time.monotonic(), self._at_walk
        if before is None:
            return True
        taken = sum(then.taken_until(each) for then, each in zip(before, now, strict=True) if then and each)
        self.busy = taken > (self._most or 0) * _FAST
        return now_s >= self._not_before_s and (self.busy or (now != before and now_s >= self._calm_until_s))

    def _walked(self, now: list[Room | None]) -> int:
        started_s = time.monotonic()
        found = size_of(self._folders, started_s + _WALK_S)
        ended_s = time.monotonic()
        self._at_walk, self._calm_until_s = now, ended_s + _CALM_S
        self._not_before_s = ended_s + _REST * (ended_s - started_s)
        return found


def size_of(folders: Iterable[str], deadline_s: float) -> int:
    """Bytes of the disk in these folders, links not followed; of what is reached before the deadline."""
    sizes: dict[tuple[int, int], int] = {}  # each file once, however many names it has

    def add(facts: os.stat_result) -> None:
        sizes[facts.st_dev, facts.st_ino] = max(ENTRY_BYTES, facts.st_blocks * 512)

    def walk(name: str, parent: int | None, levels: int) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if parent is None else os.O_NOFOLLOW)
        try:
            descriptor = os.open(name, flags, dir_fd=parent)  # by steps: a whole path may be longer than a path can be
        except OSError:
            return
        try:
            add(os.fstat(descriptor))
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if time.monotonic() > deadline_s:
                        return
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except OSError:  # removed meanwhile
                        continue
                    add(facts)
                    if stat.S_ISDIR(facts.st_mode) and levels > 0:
                        walk(entry.name, descriptor, levels - 1)
        except OSError:
            return
        finally:
            os.close(descriptor)

    for folder in folders:
        walk(folder, None, _DEEPEST)
    return sum(sizes.values())
