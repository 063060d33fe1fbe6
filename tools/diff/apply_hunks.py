"""Put the hunks of a diff into the lines of a file.

Refuses to guess: a hunk goes where it says, or, shifted, to the only place where all its old lines stand.
"""

from __future__ import annotations

from collections.abc import Sequence

from tools.diff.diff_text import Hunk


class Misfit(ValueError):
    """The hunks do not fit the file; the message says which one, where and why."""


def apply_hunks(old: list[str], hunks: Sequence[Hunk], path: str) -> list[str]:
    """The lines of `old` with the hunks applied; `path` is for the message. Raises: Misfit."""
    out: list[str] = []
    done = drift = 0
    for number, hunk in enumerate(hunks, 1):
        start = hunk.old_start - 1 if hunk.old else hunk.old_start
        at = _place(old, hunk.old, start + drift, done, f"{path}, hunk {number}")
        drift = at - start
        out += old[done:at] + hunk.new
        done = at + len(hunk.old)
    return out + old[done:]


def _place(lines: list[str], wanted: list[str], expected: int, at_least: int, where: str) -> int:
    """The index at which `wanted` stands: the expected one, else the only one there is."""
    if at_least <= expected <= len(lines) and lines[expected : expected + len(wanted)] == wanted:
        return expected
    if not wanted:
        raise Misfit(f"{where}: there is no line {expected} to add lines after")
    places = [
        index
        for index in range(at_least, len(lines) - len(wanted) + 1)
        if lines[index] == wanted[0] and lines[index : index + len(wanted)] == wanted
    ]
    if len(places) == 1:
        return places[0]
    if places:
        raise Misfit(f"{where}: its lines stand at {len(places)} places, and at none of them by number")
    raise Misfit(f"{where}: {_difference(lines, wanted, expected)}")


def _difference(lines: list[str], wanted: list[str], expected: int) -> str:
    """What a proposer needs to mend its hunk: the first line that differs at the place it names."""
    if expected < 0 or len(lines) < expected + len(wanted):
        return f"it expects {len(wanted)} lines from line {expected + 1} on, and the file has {len(lines)}"
    for at, line in enumerate(wanted, expected):
        if lines[at] != line:
            return f"line {at + 1} should read {line!r}, but reads {lines[at]!r}"
    return f"it starts at line {expected + 1}, which the hunk before it has changed already"
