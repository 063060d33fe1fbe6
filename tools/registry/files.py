"""Tools that read and change the files of a candidate."""

from __future__ import annotations

import re
from itertools import islice
from typing import Protocol

from pydantic import Field

from tools.diff.hunks import split_lines
from tools.registry import Request, Tool, ToolFault, cut, paged
from tools.registry.worktree import MAX_LISTED, Worktree

_LINES = 400
_MATCHES = 100
_COLUMNS = 400


class HasWorktree(Protocol):
    """What these tools need of a session."""

    worktree: Worktree

    def reset(self) -> None: ...


class ListFiles(Request):
    """List the files of the repository (as the stack left them, with what you changed)."""

    path: str = ""
    """A folder, relative to the top; empty for all."""


def list_files(session: HasWorktree, request: ListFiles) -> str:
    found = session.worktree.files(request.path)
    more = f"\n[… {len(found) - MAX_LISTED} more; name a folder …]" if len(found) > MAX_LISTED else ""
    return "\n".join(found[:MAX_LISTED]) + more or "there are no files"


class ReadFile(Request):
    """Read a text file, or some lines of it. Lines are numbered as `12: code`; the numbers are not part of the file."""

    path: str
    """Relative to the top of the repository."""
    first_line: int = Field(default=1, ge=1)
    """The first line to read, from 1."""
    lines: int = Field(default=_LINES, ge=1, le=2000)
    """How many lines."""


def read_file(session: HasWorktree, request: ReadFile) -> str:
    lines = [line.rstrip("\r\n") for line in split_lines(session.worktree.read(request.path))]
    every = [f"{number}: {line}" for number, line in enumerate(lines, 1)]
    shown = paged(every, request.first_line, request.lines, what=request.path, tool="read_file")
    return shown or "the file is empty"


class Search(Request):
    """Find lines in the files of the repository. Gives `path:line:text`."""

    pattern: str = Field(min_length=1, max_length=1000)
    """An extended regular expression (grep -E)."""
    path: str = ""
    """A file or folder to look in; empty for all."""
    literal: bool = False
    """Take the pattern as it is."""


def search(session: HasWorktree, request: Search) -> str:
    found = session.worktree.search(request.pattern, request.path, literal=request.literal)
    lines = [cut(line, _COLUMNS) for line in found[:_MATCHES]]
    if len(found) > _MATCHES:
        lines.append(f"[… {len(found) - _MATCHES} more; search for something rarer, or in a folder …]")
    return "\n".join(lines) or "no line matches"


class EditFile(Request):
    """Replace text in a file of your candidate. `old` must be there exactly once, spaces and line ends included."""

    path: str
    """Relative to the top of the repository."""
    old: str = Field(min_length=1)
    """The text to replace, without line numbers."""
    new: str
    """What takes its place."""
    every: bool = False
    """Replace all places where it occurs."""


def edit_file(session: HasWorktree, request: EditFile) -> str:
    text = session.worktree.read(request.path)
    old, new = request.old, request.new
    if 0 < text.count("\r\n") == text.count("\n"):
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    count = text.count(old)
    if not count:
        raise ToolFault(f"That text is not in {request.path}.", _nearest(text, old))
    if count > 1 and not request.every:
        places = islice(re.finditer(re.escape(old), text), 10)
        lines = [str(text.count("\n", 0, place.start()) + 1) for place in places]
        raise ToolFault(
            f"That text is in {request.path} {count} times, in lines {', '.join(lines)}.",
            "Add lines around it until it is there once, or set every=true.",
        )
    session.worktree.allow_size(request.path, len(text) + count * (len(new) - len(old)))  # before it is made
    session.worktree.write(request.path, text.replace(old, new))
    return f"replaced in {request.path}" + (f", {count} times" if count > 1 else "")


def _nearest(text: str, wanted: str) -> str:
    """Where the first line that says something stands, whatever its indentation."""
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    alike = [number for number, line in enumerate(split_lines(text), 1) if first and line.strip() == first]
    if alike:
        return f"Its first line is like line {alike[0]}; read_file shows the exact text from there."
    return "read_file shows the exact text; it may have been changed by an edit before."


class WriteFile(Request):
    """Write a whole file of your candidate: a new one, or in the place of one that is there."""

    path: str
    """Relative to the top of the repository."""
    content: str
    """All of the text."""


def write_file(session: HasWorktree, request: WriteFile) -> str:
    session.worktree.write(request.path, request.content)
    return f"wrote {request.path}, {len(request.content.splitlines())} lines"


class RemoveFile(Request):
    """Remove a file of your candidate."""

    path: str
    """Relative to the top of the repository."""


def remove_file(session: HasWorktree, request: RemoveFile) -> str:
    session.worktree.read(request.path)
    session.worktree.write(request.path, None)
    return f"removed {request.path}"


class Diff(Request):
    """Show your candidate so far as a diff against the top of the stack."""

    first_line: int = Field(default=1, ge=1)
    """The first line to show, from 1."""


def diff(session: HasWorktree, request: Diff) -> str:
    lines = session.worktree.diff().split("\n")
    return paged(lines, request.first_line, None, what="It", tool="diff") or "nothing is changed yet"


class Reset(Request):
    """Take all your changes back: the files are those of the top of the stack again."""


def reset(session: HasWorktree, request: Reset) -> str:
    session.reset()
    return "all changes are taken back"


TOOLS = [
    Tool("list_files", ListFiles, list_files, looks_only=True),
    Tool("read_file", ReadFile, read_file, looks_only=True),
    Tool("search", Search, search, looks_only=True),
    Tool("edit_file", EditFile, edit_file),
    Tool("write_file", WriteFile, write_file),
    Tool("remove_file", RemoveFile, remove_file),
    Tool("diff", Diff, diff, looks_only=True),
    Tool("reset", Reset, reset),
]
