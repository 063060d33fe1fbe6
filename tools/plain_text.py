"""What a target says of itself, made safe to print and to store.

Does not escape for any particular format: that is for whoever writes it.
"""

from __future__ import annotations

import unicodedata
from typing import Any

_LONGEST = 4000  # characters


def plain(said: object) -> str:
    """Text without control characters and halves of characters, at most 4000 characters of it."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in str(said)[:_LONGEST])


def plain_values(value: Any) -> Any:
    """The same for every text in a nest of dicts and lists."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain_values(key): plain_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(part) for part in value]
    return value


def one_line(text: str, columns: int = 0) -> str:
    """`text` without line breaks and control characters, cut to `columns` of a terminal when that is above 0."""
    clean = " ".join("".join(sign if sign.isprintable() else " " for sign in text[:_LONGEST]).split())
    if columns <= 0 or width_of(clean) <= columns:
        return clean
    kept, used = [], 1  # the ellipsis
    for sign in clean:
        used += width_of(sign)
        if used > columns:
            break
        kept.append(sign)
    return "".join(kept) + "…"


def width_of(text: str) -> int:
    """Columns of a terminal that `text` takes: two for wide signs, none for signs that sit on the one before."""
    if text.isascii():
        return len(text)
    return sum(_columns(sign) for sign in text)


def _columns(sign: str) -> int:
    if unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1
