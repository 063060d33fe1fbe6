"""What git does not say of a diff: lines that no hunk counts, hunks that fit at several places, and why one does not.

Never applies anything; git does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEADER = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_MOVED = re.compile(r"Hunk #(\d+) succeeded at \d+ \(offset ")
_FAILED = re.compile(r"error: patch failed: .*:(\d+)$")


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


def objection(files: list[list[Hunk]], said: str, contents: list[tuple[str, str]]) -> str | None:
    """Why a diff is not to be used, by what `git apply --verbose` printed; None where it said nothing against it.

    A hunk that does not fit: with the first line that differs where it should be. One that git put at another place
    than it names: where that place is not the only one. `contents` are path and old text of each file of the diff.
    """
    at = -1
    for line in said.split("\n"):
        if line.startswith("Checking patch "):  # before it says anything else of a file
            at += 1
        elif 0 <= at < len(contents):
            path, text = contents[at]
            lines = split_lines(text)
            if match := _MOVED.match(line):
                hunk = files[at][int(match[1]) - 1]
                if not hunk.old:
                    return f"{path}, hunk {match[1]}: there is no line {hunk.start} to add lines after"
                starts = [start for start, each in enumerate(lines) if each == hunk.old[0]]
                places = sum(lines[start : start + len(hunk.old)] == hunk.old for start in starts)
                if places > 1:
                    return f"{path}, hunk {match[1]}: its lines stand at {places} places, and at none of them by number"
            elif match := _FAILED.match(line):
                for number, hunk in enumerate(files[at], 1):
                    if hunk.start == int(match[1]):
                        return f"{path}, hunk {number}: {_difference(lines, hunk)}"
    errors = [line for line in said.splitlines() if line.startswith(("error: ", "fatal: "))]
    return errors[0].partition(": ")[2].removesuffix(" in index") if errors else None


def _difference(lines: list[str], hunk: Hunk) -> str:
    start = max(hunk.start, 1)
    if len(lines) < start - 1 + len(hunk.old):
        return f"it expects {len(hunk.old)} lines from line {start} on, and the file has {len(lines)}"
    for number, line in enumerate(hunk.old, start):
        if lines[number - 1] != line:
            return f"line {number} should read {line!r}, but reads {lines[number - 1]!r}"
    return f"it starts at line {start}, which the hunk before it has changed already"


def split_lines(text: str) -> list[str]:
    """Lines with their ends. Only `\\n` ends one; `splitlines` would also cut at form feeds and U+2028."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
