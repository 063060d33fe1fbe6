"""What git does not say of a diff: lines that no hunk counts, hunks that fit at several places, and why one does not.

Never applies anything; git does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_HEADER = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_CHECKED = re.compile(r"Checking patch ")  # by `git apply --verbose`, before it says anything else of a file
_MOVED = re.compile(r"Hunk #(\d+) succeeded at \d+ \(offset ")
_FAILED = re.compile(r"error: patch failed: (.*):(\d+)$")


class Misfit(ValueError):
    """A diff does not say clearly what it does to which line; the message is for its author."""


@dataclass
class Hunk:
    start: int
    """The first old line, from 1; with no old lines, the line after which the new ones go."""
    old: list[str] = field(default_factory=list)
    """With their ends."""


def read_hunks(diff: str) -> list[list[Hunk]]:
    """The hunks of each file. Raises: Misfit for a line that the hunk above it does not count: git passes it over."""
    files: list[list[Hunk]] = []
    lines = diff.split("\n")
    old_left = new_left = 0
    in_hunk = in_header = False
    last = ""
    for number, line in enumerate(lines, 1):
        sign = line[:1] or " "  # an editor may have stripped the blank of an empty line
        starts_file = line.startswith("--- ") and [each[:4] for each in lines[number : number + 2]] == ["+++ ", "@@ -"]
        if in_hunk and sign == "\\":
            if files[-1][-1].old and last in "- ":
                files[-1][-1].old[-1] = files[-1][-1].old[-1].removesuffix("\n")
        elif old_left > 0 or new_left > 0:
            old_left, new_left, last = old_left - (sign in "- "), new_left - (sign in "+ "), sign
            if sign in "- ":
                files[-1][-1].old.append(line[1:] + "\n")
        elif files and (match := _HEADER.match(line)):
            files[-1].append(Hunk(int(match[1])))
            old_left, new_left = int(match[2] or 1), int(match[3] or 1)
            in_hunk, in_header = True, False
        elif line.startswith("diff --git ") or (starts_file and not in_header):
            files.append([])
            in_hunk, in_header = False, True
        elif in_header and line.startswith("Binary files "):
            raise Misfit(f"line {number} of the diff: a binary file without its content (`git diff --binary` has it)")
        elif in_hunk:
            if line.startswith(("+", "-", " ")) and line not in ("--", "-- "):  # these end a mail
                raise Misfit(f"line {number} of the diff: one line more than the hunk above it says that it has")
            in_hunk = False
    return files


def check_places(files: list[list[Hunk]], said: str, contents: list[tuple[str, str]]) -> None:
    """Raises: Misfit where git put a hunk at another place than it names, and that was not the only one.

    `said` is what `git apply --verbose` printed; `contents` are path and old text of each file of the diff.
    """
    for at, line in _by_file(said):
        if match := _MOVED.match(line):
            number = int(match[1])
            hunk = files[at][number - 1]
            path, text = contents[at]
            if not hunk.old:
                raise Misfit(f"{path}, hunk {number}: there is no line {hunk.start} to add lines after")
            lines = split_lines(text)
            starts = [number for number, each in enumerate(lines) if each == hunk.old[0]]
            places = sum(lines[start : start + len(hunk.old)] == hunk.old for start in starts)
            if places > 1:
                raise Misfit(
                    f"{path}, hunk {number}: its lines stand at {places} places, and at none of them by number"
                )


def explain(files: list[list[Hunk]], said: str, contents: list[tuple[str, str]]) -> str:
    """Why git did not apply a diff: for a hunk that does not fit, the first line that differs where it should be."""
    for at, line in _by_file(said):
        if (match := _FAILED.match(line)) and at < len(contents):
            path, text = contents[at]
            for number, hunk in enumerate(files[at], 1):
                if hunk.start == int(match[2]):
                    return f"{path}, hunk {number}: {_difference(split_lines(text), hunk)}"
    errors = [line for line in said.splitlines() if line.startswith(("error: ", "fatal: "))]
    return errors[0].partition(": ")[2].removesuffix(" in index") if errors else "git cannot apply it"


def _difference(lines: list[str], hunk: Hunk) -> str:
    start = max(hunk.start, 1)
    if len(lines) < start - 1 + len(hunk.old):
        return f"it expects {len(hunk.old)} lines from line {start} on, and the file has {len(lines)}"
    for number, line in enumerate(hunk.old, start):
        if lines[number - 1] != line:
            return f"line {number} should read {line!r}, but reads {lines[number - 1]!r}"
    return f"it starts at line {start}, which the hunk before it has changed already"


def _by_file(said: str) -> Iterator[tuple[int, str]]:
    """Lines of git's, with the number of the file that they are about."""
    at = -1
    for line in said.split("\n"):
        if _CHECKED.match(line):
            at += 1
        elif at >= 0:
            yield at, line


def split_lines(text: str) -> list[str]:
    """Lines with their ends. Only `\\n` ends one; `splitlines` would also cut at form feeds and U+2028."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
