"""Read an untrusted CSV file row by row: sizes are bounded, a row that does not fit the header is counted, none raises.

A row is one line.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

from tools.judging.tensors import BadTensorFile, opened
from tools.plain_text import plain

MOST_BYTES = 64 << 20  # of one file, and of all files of a folder
MOST_ROWS = 500_000
MOST_COLUMNS = 4096
LONGEST_LINE = 128 << 10  # what csv takes for one field
LONGEST_NAME = 2000  # of a kernel, as in `tools/profiler/trace.py`, so that names cut there and here are equal
_LONGEST_NUMBER = 40
_LARGEST = 1e30  # sums of such numbers stay finite
_MOST_DEPTH, _MOST_ENTRIES, _MOST_FILES = 6, 10_000, 64  # of a folder that a profiled program wrote to

Spellings = tuple[str, ...]  # of one column in lower case, the newest first


@dataclass(frozen=True)
class Row:
    """One row. Columns are asked for in lower case, by every spelling that one column has had."""

    _index: dict[str, int]
    _parts: list[str]

    def text(self, *names: str) -> str | None:
        """The first of these columns that the file has and that is not empty."""
        parts = (self._parts[self._index[name]].strip() for name in names if name in self._index)
        return next(filter(None, parts), None)

    def name(self, *names: str) -> str | None:
        """The same for text that a target may have chosen: without control characters, and cut."""
        found = self.text(*names)
        return None if found is None else _printable(found[:LONGEST_NAME])

    def whole(self, *names: str) -> int | None:
        """A whole number from 0 on, exact however large; None for everything else."""
        found = self.text(*names) or ""
        if found.isascii() and found.isdigit() and len(found) <= _LONGEST_NUMBER:
            return int(found)
        number = _number(found)
        return int(number) if number is not None and number.is_integer() else None

    def number(self, *names: str) -> float | None:
        """A finite number from 0 on; None for everything else."""
        return _number(self.text(*names) or "")


@lru_cache(maxsize=4096)  # the same few names are on all rows
def _printable(text: str) -> str:
    return plain(text).replace("\t", " ")


def _number(text: str) -> float | None:
    if len(text) > _LONGEST_NUMBER or not text.isascii() or "_" in text:  # Python takes more for numbers than tools do
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= _LARGEST else None


@dataclass
class Table:
    """A file; `notes` grows while it is read, and `header` is there, as spelled, from the first row on."""

    path: Path
    notes: list[str] = field(default_factory=list)
    header: tuple[str, ...] = ()

    def rows(self, needed: Sequence[Spellings], wanted: Sequence[Spellings] = ()) -> Iterator[Row]:
        """All rows that fit the header; none when a needed column is missing. Missing columns are noted."""
        try:
            with opened(self.path) as file:
                content = file.read(MOST_BYTES)
                if len(content) < os.fstat(file.fileno()).st_size:
                    self.note(f"is larger than {MOST_BYTES >> 20} MiB; the rest was not read")
        except (OSError, BadTensorFile) as error:
            self.note(f"could not be read: {error.strerror if isinstance(error, OSError) else error}")
            return
        # a last line without an end may be cut off in the middle of a number, which would be another number
        *lines, cut = content.decode("utf-8-sig", errors="replace").split("\n")
        self.header = tuple(_fields(lines[0]) if lines else ())
        if not self.header or len(self.header) > MOST_COLUMNS:
            self.note("has no header that can be read" if content else "is empty")
            return
        index = {name.strip().lower(): at for at, name in reversed(list(enumerate(self.header)))}
        if missing := _missing(index, needed):
            self.note(f"lacks the column {missing} and was not read")
            return
        if missing := _missing(index, wanted):
            self.note(f"lacks {missing}")
        filled = [line for line in lines[1:] if line.rstrip("\r")]
        if len(filled) > MOST_ROWS:
            self.note(f"has more than {MOST_ROWS} rows; the rest was not read")
        garbled = int(bool(cut))
        for line in filled[:MOST_ROWS]:
            parts = _fields(line)
            if len(parts) == len(self.header):
                yield Row(index, parts)
            else:
                garbled += 1
        if garbled:
            self.note(f"has {garbled} garbled rows, which were passed over")

    def note(self, text: str) -> None:
        self.notes.append(f"{plain(self.path.name[-100:])} {text}")


def _missing(index: dict[str, int], columns: Sequence[Spellings]) -> str:
    return ", ".join(names[0] for names in columns if not index.keys() & set(names))


def _fields(line: str) -> list[str]:
    """Nothing for a line that is too long, or that csv does not take, such as one with a carriage return inside."""
    try:
        return next(csv.reader([line.rstrip("\r")]), []) if len(line) <= LONGEST_LINE else []
    except csv.Error:
        return []


def find(folder: Path, wanted: Callable[[str], object], notes: list[str]) -> list[Path]:
    """The files with wanted names below a folder that a profiled program wrote to, sorted; links are not followed.

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
