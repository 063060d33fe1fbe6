"""Write a unified diff as git writes it: what turns one content into another.

Refuses to read files: `tools/diff/patch.py` does. The text is always valid UTF-8; a file that is not travels as binary.
"""

from __future__ import annotations

import base64
import difflib
import re
import zlib
from collections.abc import Iterator, Sequence

from tools.diff.diff_text import FileDiff, Hunk

_CONTEXT_LINES = 3


def compare(path: str, old: bytes | None, new: bytes | None, *, executable: bool = False) -> FileDiff | None:
    """What turns `old` into `new`; None where nothing does. None as content: the file is not there."""
    if old == new:
        return None
    mode = "100755" if executable else "100644"
    paths = (None if old is None else path, None if new is None else path)
    modes = (mode if new is None else None, mode if old is None else None)
    before, after = _text(old), _text(new)
    if before is None or after is None:
        return FileDiff(*paths, *modes, binary=new or b"")
    return FileDiff(*paths, *modes, hunks=tuple(_hunks(split_lines(before), split_lines(after))))


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    matcher = difflib.SequenceMatcher(None, old, new)
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        lines: list[tuple[str, str]] = []
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [(" ", text) for text in old[i1:i2]]
            else:
                lines += [("-", text) for text in old[i1:i2]]
                lines += [("+", text) for text in new[j1:j2]]
        first, last = group[0], group[-1]
        old_start = first[1] + (last[2] > first[1])
        new_start = first[3] + (last[4] > first[3])
        yield Hunk(old_start, new_start, tuple(lines))


def render(file: FileDiff) -> str:
    """`file` as git writes it, without the `index` line, which depends on the repository's kind of hash.

    Only git wants it, and only for binary files; what a user applies with git is written by git.
    """
    old, new = file.old_path, file.new_path
    shown_old, shown_new = _quote(f"a/{old or new}"), _quote(f"b/{new or old}")
    out = [f"diff --git {shown_old} {shown_new}\n"]
    if old is None:
        out.append(f"new file mode {file.new_mode or '100644'}\n")
    elif new is None:
        out.append(f"deleted file mode {file.old_mode or '100644'}\n")
    elif file.new_mode and file.new_mode != file.old_mode:
        out.append(f"old mode {file.old_mode or '100644'}\nnew mode {file.new_mode}\n")
    if old is not None and new is not None and old != new:
        out.append(f"rename from {_quote(old)}\nrename to {_quote(new)}\n")
    if file.binary is not None:
        out.append(_render_literal(file.binary))
    elif file.hunks:
        out.append(f"--- {'/dev/null' if old is None else shown_old + _tab(shown_old)}\n")
        out.append(f"+++ {'/dev/null' if new is None else shown_new + _tab(shown_new)}\n")
        out += [_render_hunk(hunk) for hunk in file.hunks]
    return "".join(out)


def _render_hunk(hunk: Hunk) -> str:
    out = [f"@@ -{hunk.old_start},{len(hunk.old)} +{hunk.new_start},{len(hunk.new)} @@\n"]
    for sign, text in hunk.lines:
        out.append(sign + text)
        if not text.endswith("\n"):
            out.append("\n\\ No newline at end of file\n")
    return "".join(out)


def _render_literal(content: bytes) -> str:
    packed = zlib.compress(content, 9)
    out = [f"GIT binary patch\nliteral {len(content)}\n"]
    for start in range(0, len(packed), 52):
        part = packed[start : start + 52]
        size = chr(len(part) + (64 if len(part) <= 26 else 70))
        out.append(size + base64.b85encode(part, pad=True).decode("ascii") + "\n")
    return "".join(out) + "\n"


def _text(content: bytes | None) -> str | None:
    """None for what has to travel as binary: a diff is UTF-8 text, and a NUL ends a line for some readers."""
    if content is None:
        return ""
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def split_lines(text: str) -> list[str]:
    """Lines with their ends. Only `\\n` ends one; `splitlines` would also cut at form feeds and U+2028."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _quote(name: str) -> str:
    if not re.search(r'[\x00-\x1f\x7f"\\\udc80-\udcff]', name):
        return name
    out = []
    for byte in name.encode("utf-8", "surrogateescape"):
        sign = chr(byte)
        out.append("\\" + sign if sign in '"\\' else sign if 32 <= byte < 127 else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def _tab(name: str) -> str:
    """git ends a name with a blank in it with a tab, so that no reader cuts it short."""
    return "\t" if " " in name and not name.startswith('"') else ""
