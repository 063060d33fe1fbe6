"""JSON objects that stand in an answer, between words or in blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_DECODER = json.JSONDecoder(strict=False)


def objects_in(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Where each begins and ends, and what it is; not those inside of others."""
    at = text.find("{")
    while at >= 0:
        try:
            found, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield at, end, found
        at = text.find("{", end)
