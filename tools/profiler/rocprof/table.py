"""Read one CSV file that was written beside the target's code, row by row.

Refuses to trust it: size, lines, columns and rows are bounded, a row that does not fit the header is passed over and
counted, and no content raises. A row is a line: where a name holds a line break, both halves are garbled rows.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tools.judging.tensors import BadTensorFile, opened
from tools.plain_text import plain

MOST_BYTES = 256 << 20  # of one file, and of all files of a folder
MOST_ROWS = 500_000
MOST_COLUMNS = 4096
LONGEST_LINE = 256 << 10
LONGEST_NAME = 2000  # of a kernel, as in `tools/profiler/trace.py`, so that names cut there and here are equal
_LONGEST_NUMBER = 40
_LARGEST = 1e30  # sums of such numbers stay finite
_LONGEST_FILE_NAME = 100
_MOST_DEPTH, _MOST_ENTRIES, _MOST_FILES = 6, 10_000, 64  # of a folder that a profiled program wrote to


@dataclass(frozen=True)
class Row:
    """One row. Columns are asked for in lower case, by every spelling that one column has had."""

    _index: dict[str, int]
    _parts: list[str]

    def text(self, *names: str) -> str | None:
        """The first of these columns that the file has and that is not empty."""
        for name in names:
            at = self._index.get(name)
            if at is not None and (found := self._parts[at].strip()):
                return found
        return None

    def name(self, *names: str) -> str | None:
        """The same for text that a target may have chosen: without control characters, and cut."""
        found = self.text(*names)
        return None if found is None else _shown(found[:LONGEST_NAME])

    def whole(self, *names: str) -> int | None:
        """A whole number from 0 on, exact however large; None for everything else."""
        found = self.text(*names) or ""
        if found.isascii() and found.isdigit() and len(found) <= _LONGEST_NUMBER:
            return int(found)
        number = number_of(found)
        return int(number) if number is not None and number == int(number) else None

    def number(self, *names: str) -> float | None:
        """A number from 0 on; None for everything else, such as what is not finite."""
        found = self.text(*names)
        return None if found is None else number_of(found)


@lru_cache(maxsize=4096)  # the same few names are on all rows
def _shown(text: str) -> str:
    return plain(text).replace("\t", " ")


def number_of(text: str) -> float | None:
    if len(text) > _LONGEST_NUMBER or not text.isascii() or "_" in text:  # Python takes more for numbers than tools do
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= _LARGEST else None


Spellings = tuple[str, ...]  # of one column, the newest first


@dataclass
class Table:
    """A file; `notes` grows while it is read, and `header` is there from the first row on."""

    path: Path
    notes: list[str] = field(default_factory=list)
    header: tuple[str, ...] = ()
    """As spelled."""

    def rows(self, needed: Sequence[Spellings], wanted: Sequence[Spellings] = ()) -> Iterator[Row]:
        """All rows that fit the header; none when a needed column is missing, which is told as for a wanted one."""
        try:
            with opened(self.path) as file:
                yield from self._rows(file, needed, wanted)
        except (OSError, BadTensorFile) as error:
            said = error.strerror if isinstance(error, OSError) else error
            self.note(f"could not be read: {said}")

    def note(self, text: str) -> None:
        self.notes.append(f"{plain(self.path.name[-_LONGEST_FILE_NAME:])} {text}")

    def _rows(self, file: BinaryIO, needed: Sequence[Spellings], wanted: Sequence[Spellings]) -> Iterator[Row]:
        lines = _lines(file)
        header = _fields(next(lines, None) or "")
        if not header or len(header) > MOST_COLUMNS:
            self.note("has no header that can be read" if os.fstat(file.fileno()).st_size else "is empty")
            return
        self.header = tuple(header)
        index: dict[str, int] = {}
        for at, name in enumerate(header):
            index.setdefault(_column(name), at)
        if missing := _missing(index, needed):
            self.note(f"lacks the column {missing} and was not read")
            return
        if missing := _missing(index, wanted):
            self.note(f"lacks {missing}")
        yield from self._fitting(lines, index)
        if file.tell() >= MOST_BYTES:
            self.note(f"is larger than {MOST_BYTES >> 20} MiB; the rest was not read")

    def _fitting(self, lines: Iterator[str | None], index: dict[str, int]) -> Iterator[Row]:
        garbled = count = 0
        for line in lines:
            parts = None if line is None else _fields(line)
            if line == "":
                continue
            if parts is None or len(parts) != len(self.header):
                garbled += 1
                continue
            if count == MOST_ROWS:
                self.note(f"has more than {MOST_ROWS} rows; the rest was not read")
                break
            count += 1
            yield Row(index, parts)
        if garbled:
            self.note(f"has {garbled} garbled rows, which were passed over")


def _missing(index: dict[str, int], columns: Sequence[Spellings]) -> str:
    return ", ".join(names[0] for names in columns if not index.keys() & set(names))


def _lines(file: BinaryIO) -> Iterator[str | None]:
    """Line by line, without its end; None for one that is too long, or the last one when it has no end.

    A last line without an end may be cut off in the middle of a number, which would be another number.
    """
    while file.tell() < MOST_BYTES and (line := file.readline(LONGEST_LINE)):
        if line.endswith(b"\n"):
            yield line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
            continue
        while line and not line.endswith(b"\n") and file.tell() < MOST_BYTES:
            line = file.readline(LONGEST_LINE)
        yield None


def _fields(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line]), None)
    except csv.Error:  # a field of more than 128 KiB
        return None


def _column(name: str) -> str:
    return name.strip().lower()


def find(folder: Path, wanted: Callable[[str], object], notes: list[str]) -> list[Path]:
    """The files with wanted names in a folder that a profiled program wrote to, sorted; links are not followed.

    The smallest come first; once they are larger than one file may be, the others are left out.
    """
    sizes: dict[Path, int] = {}
    waiting, seen = [(folder, 0)], 0
    while waiting and seen < _MOST_ENTRIES:
        place, depth = waiting.pop()
        try:
            with os.scandir(place) as inside:
                for entry in islice(inside, _MOST_ENTRIES - seen):
                    seen += 1
                    if entry.is_dir(follow_symlinks=False) and depth < _MOST_DEPTH:
                        waiting.append((Path(entry.path), depth + 1))
                    elif wanted(entry.name):
                        sizes[Path(entry.path)] = entry.stat(follow_symlinks=False).st_size
        except OSError as error:
            notes.append(f"a folder of results could not be read: {error.strerror}")
    if seen == _MOST_ENTRIES:
        notes.append(f"the folder of results has {_MOST_ENTRIES} entries or more; some may have been left out")
    found, room = list[Path](), MOST_BYTES
    for path, size in sorted(sizes.items(), key=lambda each: each[1])[:_MOST_FILES]:
        if room > 0:  # the one that goes beyond it is read as far as it may be
            found.append(path)
        room -= size
    if left := len(sizes) - len(found):
        notes.append(f"{left} files of results are too many or too large and were not read")
    return sorted(found)
