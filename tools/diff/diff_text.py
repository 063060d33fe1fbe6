"""Read the text of a unified diff: what it says happens to which file.

Refuses to touch files and to judge what a change may do: `tools/diff/patch.py` does both. Text is UTF-8 with
`surrogateescape`, so bytes that are no UTF-8 survive; lines end at `\\n` only.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_BINARY_BYTES = 16 << 20
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


class DiffSyntax(ValueError):
    """The text is no diff that can be read; the message says where and why."""


@dataclass(frozen=True)
class Hunk:
    """Lines as (sign, text): sign is " ", "-" or "+"; text ends in a newline unless the file does not."""

    old_start: int  # from 1; with no old lines, the line after which the new ones go
    new_start: int
    lines: tuple[tuple[str, str], ...]

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]


@dataclass(frozen=True)
class FileDiff:
    """What happens to one file. No old path: it is new. No new path: it is deleted. Two different ones: renamed."""

    old_path: str | None
    new_path: str | None
    old_mode: str | None = None
    new_mode: str | None = None
    hunks: tuple[Hunk, ...] = ()
    binary: bytes | None = None  # the whole new content


@dataclass
class _Header:
    """What has been read of a file's header so far."""

    git_line: str = ""
    names: dict[str, str | None] = field(default_factory=dict)  # "---", "+++", "rename from", "rename to"
    modes: dict[str, str] = field(default_factory=dict)  # "old mode", "new mode", "new file mode", …


def parse(diff: str) -> tuple[FileDiff, ...]:
    """The files of a unified diff, git's or plain; text around them (a mail, an explanation) is passed over.

    Raises: DiffSyntax.
    """
    return tuple(_Reader(diff).files())


class _Reader:
    def __init__(self, diff: str) -> None:
        self.lines = diff.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self.at = 0

    def line(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.lines[index] if index < len(self.lines) else ""

    def fail(self, reason: str) -> DiffSyntax:
        return DiffSyntax(f"line {self.at + 1} of the diff: {reason}")

    def files(self) -> Iterator[FileDiff]:
        while self.at < len(self.lines):
            if self.line().startswith("diff --git "):
                yield self.file(self.git_header())
            elif self.line().startswith("--- ") and self.line(1).startswith("+++ "):
                yield self.file(_Header())
            elif _HUNK.match(self.line()):
                raise self.fail("a hunk (@@) without a file name (--- and +++) before it")
            elif self.line().startswith(("diff --cc ", "diff --combined ")):
                raise self.fail("a diff of a merge cannot be applied")
            else:
                self.at += 1

    def git_header(self) -> _Header:
        header = _Header(git_line=self.line())
        self.at += 1
        while self.at < len(self.lines):
            line = self.line()
            if match := re.match(r"(old mode|new mode|new file mode|deleted file mode) (\d{6})$", line):
                header.modes[match[1]] = match[2]
            elif match := re.match(r"(rename from|rename to) (.+)$", line):
                header.names[match[1]] = _unquote(match[2])
            elif line.startswith("copy "):
                raise self.fail("copies are not supported; give the new file in full")
            elif line.startswith("Binary files "):
                raise self.fail("a binary file without its content (`git diff --binary` writes it)")
            elif not line.startswith(("index ", "similarity index ", "dissimilarity index ")):
                break
            self.at += 1
        return header

    def file(self, header: _Header) -> FileDiff:
        hunks: list[Hunk] = []
        binary = None
        if self.line().startswith("--- ") and self.line(1).startswith("+++ "):
            header.names["---"] = _header_name(self.line())
            header.names["+++"] = _header_name(self.line(1))
            self.at += 2
            while match := _HUNK.match(self.line()):
                hunks.append(self.hunk(match))
            self.check_end_of_hunk()
            if not hunks:
                raise self.fail(f"no hunk (@@ -1,2 +1,2 @@) for {header.names['+++'] or header.names['---']}")
        elif self.line() == "GIT binary patch":
            self.at += 1
            binary = self.literal()
        elif _HUNK.match(self.line()):
            raise self.fail("a hunk (@@) without --- and +++ before it")
        old_path, new_path = self.paths(header)
        modes = header.modes
        return FileDiff(
            old_path,
            new_path,
            old_mode=modes.get("old mode") or modes.get("deleted file mode"),
            new_mode=modes.get("new mode") or modes.get("new file mode"),
            hunks=tuple(hunks),
            binary=binary,
        )

    def paths(self, header: _Header) -> tuple[str | None, str | None]:
        names = header.names
        if ("rename from" in names) != ("rename to" in names):
            raise self.fail("half a rename")
        if "---" in names:
            old, new = _without_prefix(names["---"], names["+++"])
            if "rename from" in names and (old, new) != (names["rename from"], names["rename to"]):
                raise self.fail("its header names different files")
        elif "rename from" in names:
            old, new = names["rename from"], names["rename to"]
        else:
            old = new = _git_line_name(header.git_line)
            if old is None:
                raise self.fail("the file name cannot be read from `diff --git`")
        if "new file mode" in header.modes:
            old = None
        if "deleted file mode" in header.modes:
            new = None
        if old is None and new is None:
            raise self.fail("neither an old nor a new file name")
        if old is not None and new is not None and old != new and "rename from" not in names:
            raise self.fail(f"two different files, {old} and {new}, without saying that it is a rename")
        return old, new

    def hunk(self, match: re.Match[str]) -> Hunk:
        started = self.at
        old_left, new_left = int(match[2] or 1), int(match[4] or 1)
        said = f"{old_left} old and {new_left} new lines"
        lines: list[tuple[str, str]] = []
        self.at += 1
        while old_left > 0 or new_left > 0 or self.line().startswith("\\ "):
            if self.at >= len(self.lines):
                self.at = started
                raise self.fail(f"the hunk says that it has {said}, and ends before")
            line = self.line()
            sign, text = line[:1] or " ", line[1:]  # an editor may have stripped the blank of an empty line
            if sign == "\\" and lines:
                lines[-1] = (lines[-1][0], lines[-1][1].removesuffix("\n"))
            elif sign in " +-":
                old_left -= sign != "+"
                new_left -= sign != "-"
                lines.append((sign, text + "\n"))
            if sign not in " +-\\" or old_left < 0 or new_left < 0:
                raise self.fail(f"this does not fit the hunk of line {started + 1}, which says that it has {said}")
            self.at += 1
        return Hunk(int(match[1]), int(match[3]), tuple(lines))

    def check_end_of_hunk(self) -> None:
        """Lines that the header of the hunk forgot to count must not be passed over in silence."""
        line = self.line()
        next_file = line.startswith("--- ") and self.line(1).startswith("+++ ")
        end_of_mail = line in ("--", "-- ")
        if line.startswith(("+", "-", " ")) and not next_file and not end_of_mail:
            raise self.fail("one line more than the hunk above it says that it has")

    def literal(self) -> bytes:
        """The new content of a binary file. The old one, which git adds for undoing, is passed over."""
        match = re.match(r"literal (\d{1,9})$", self.line())
        if not match:
            raise self.fail("only whole binary files (`literal`) are supported, no binary deltas")
        size = int(match[1])
        packed = bytearray()
        self.at += 1
        while self.line():
            packed += self.literal_line(self.line())
            self.at += 1
        try:
            content = zlib.decompressobj().decompress(bytes(packed), min(size, MAX_BINARY_BYTES) + 1)
        except zlib.error as error:
            raise self.fail(f"damaged binary content: {error}") from error
        if len(content) != size:
            raise self.fail(f"binary content of another size than the {size} bytes that it says (or over the limit)")
        if re.match(r"(literal|delta) \d+$", self.line(1)):
            self.at += 2
            while self.line():
                self.at += 1
        return content

    def literal_line(self, line: str) -> bytes:
        size = ord(line[0]) - (64 if line[0] <= "Z" else 70)
        try:
            content = base64.b85decode(line[1:])
        except (ValueError, binascii.Error) as error:
            raise self.fail(f"damaged binary content: {error}") from error
        if not 1 <= size <= 52 or len(content) - 3 > size or len(content) < size:
            raise self.fail("damaged binary content")
        return content[:size]


def _header_name(line: str) -> str | None:
    name = line[4:]
    name = _unquote(name) if name.startswith('"') else name.split("\t")[0].removesuffix("\r")
    return None if name == "/dev/null" else name


def _without_prefix(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    if (old is None or old.startswith("a/")) and (new is None or new.startswith("b/")):
        return (None if old is None else old[2:]), (None if new is None else new[2:])
    return old, new


def _git_line_name(line: str) -> str | None:
    """The name on `diff --git a/x b/x`, for a change without ---: both sides are the same file then."""
    rest = line.removeprefix("diff --git ")
    half = (len(rest) - 1) // 2
    old, new = rest[:half], rest[half + 1 :]
    if rest[half : half + 1] != " ":
        return None
    if old.startswith('"') and new.startswith('"'):
        old, new = _unquote(old), _unquote(new)
    return old[2:] if old.startswith("a/") and new == "b/" + old[2:] else None


def _unquote(name: str) -> str:
    """Undo git's quoting of names: C escapes between double quotes."""
    if not name.startswith('"'):
        return name
    match = re.match(r'"((?:[^"\\]|\\.)*)"', name)
    if not match:
        raise DiffSyntax(f"a file name with an open quote: {name}")
    out = bytearray()
    for part in re.finditer(r"\\([0-7]{3})|\\(.)|([^\\]+)", match[1]):
        if part[1]:
            out.append(int(part[1], 8) & 0xFF)
        elif part[2]:
            if part[2] not in _ESCAPES:
                raise DiffSyntax(f"a file name with an unknown escape: {name}")
            out.append(_ESCAPES[part[2]])
        else:
            out += part[3].encode("utf-8", "surrogateescape")
    return out.decode("utf-8", "surrogateescape")
