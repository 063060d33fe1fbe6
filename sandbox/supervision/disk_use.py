"""Know what a command takes of the disk: when its files are counted, and what is charged while they cannot be.

Refuses to spend more than a tenth of its time on it, and to charge a command with what others wrote while it is known
what it wrote itself. Standard library only: it runs inside supervisors.

Between two counts it can write as fast as the disk takes it: a second while little changes, ten times as long as the
last count took where that was slow. What no count sees is listed in `held_files.py`; files that share their blocks
(reflinks) count each for itself. Without a right to read what it wrote, and when its files could not all be seen for
`_PATIENCE_S`, it is charged with what the disk has lost since the last complete count, others' files included: also
when there are too many to look at in `_COUNT_S`, some 40,000 on a busy machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from sandbox.kernel import process_tree
from sandbox.supervision import held_files

_COUNT_S = 0.4  # the longest count: limits and the wish to stop are looked at between two
_REST = 10  # times as long as a count took until the next
_CALM_S = 1.0  # between two counts while the disk fills slowly
_FAST = 1 / 16  # of the limit, since the last count: fast
_PATIENCE_S = 3.0  # files may well be on their way between processes, but hardly at every look


class _Level(NamedTuple):
    """How things stand at one look; only differences mean anything."""

    filled_bytes: int  # of the disk, by everybody
    written_bytes: int  # by its processes
    all_told: bool  # whether that is of all of them


class DiskUse:
    """Bytes that a tree of processes holds in some folders and beside them. For `queue` see `held_files.count`."""

    def __init__(self, folders: Iterable[str], queue: str | None = None) -> None:
        self._folders, self._queue = list(folders), queue
        self._writes = _Writes()
        self._seen = self._complete = 0  # by the last count, and by the last that was complete
        self._at_complete = _Level(self._filled(), 0, True)
        self._at_count: _Level | None = None
        self._counted_s = self._not_before_s = 0.0
        self._hidden_since_s: float | None = None
        self.busy = False  # the disk has been filling fast since the last count

    def taken(self, limit: int, pids: list[int]) -> int:
        """What it holds; more is charged only while something is hidden."""
        now_s, level = time.monotonic(), _Level(self._filled(), *self._writes.total(pids))
        may_count = now_s >= self._not_before_s
        grown = 0 if self._at_count is None else level.filled_bytes - self._at_count.filled_bytes
        self.busy = may_count and grown > limit * _FAST
        if may_count and self._is_due(level, now_s):
            self._count(level, pids)
        if self._hidden_since_s is None:
            return self._seen
        return max(self._seen, self._complete + self._grown(level, patient=now_s < self._hidden_since_s + _PATIENCE_S))

    def _is_due(self, level: _Level, now_s: float) -> bool:
        if self._at_count is None or self._hidden_since_s is not None or self.busy:
            return True
        return level != self._at_count and now_s > self._counted_s + _CALM_S

    def _count(self, level: _Level, pids: list[int]) -> None:
        started_s = time.monotonic()
        self._seen, complete = held_files.count(self._folders, pids, _COUNT_S, queue=self._queue)
        self._at_count, self._counted_s = level, time.monotonic()
        self._not_before_s = self._counted_s + _REST * (self._counted_s - started_s)
        if complete:
            self._complete, self._at_complete, self._hidden_since_s = self._seen, level, None
        elif self._hidden_since_s is None:
            self._hidden_since_s = started_s

    def _grown(self, level: _Level, *, patient: bool) -> int:
        """The most that it can hold beyond what the last complete count found."""
        lost = level.filled_bytes - self._at_complete.filled_bytes
        if not level.all_told:
            return lost
        own = level.written_bytes - self._at_complete.written_bytes
        return own if patient else max(own, lost)

    def _filled(self) -> int:
        """By everybody, up to a constant; each file counts, empty or not."""
        filled = {}
        for folder in self._folders:
            with contextlib.suppress(OSError):
                found = os.statvfs(folder)
                inodes = found.f_files - found.f_ffree
                filled[os.stat(folder).st_dev] = held_files.ENTRY_BYTES * inodes - found.f_bavail * found.f_frsize
        return sum(filled.values())


class _Writes:
    """What processes have written, those that ended included, as far as they were seen.

    What somebody has waited for counts with him as well: rather too much than too little, where it is asked for.
    """

    def __init__(self) -> None:
        self._running: dict[int, int] = {}
        self._ended = 0

    def total(self, pids: Iterable[int]) -> tuple[int, bool]:
        """The bytes, and whether that is of all processes that run."""
        before, self._running, all_told = self._running, {}, True
        for pid in pids:
            written, known = process_tree.written_bytes(pid), before.pop(pid, 0)
            if written is None:
                found = process_tree.stat(pid)
                all_told = all_told and (found is None or not found.alive)
                written = known
            elif written < known:
                self._ended += known  # it was another process of this number
            self._running[pid] = written
        self._ended += sum(before.values())
        return self._ended + sum(self._running.values()), all_told
