"""What a target says of itself, made safe to print and to store.

Refuses to escape for any particular format: that is for whoever writes it.
"""

from __future__ import annotations

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
