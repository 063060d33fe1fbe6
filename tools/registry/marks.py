"""Marks around what comes from the target, for whoever reads it as data and takes no orders from it.

Does not judge the text: whatever it says is passed on, and none of it can end its mark or begin another.
"""

from __future__ import annotations

import re

END_OF_DATA = "</output>"  # of what `as_data` marks


def as_data(name: str, said: str) -> str:
    """What a tool said, marked as data."""
    return marked("output", said, f' tool="{name}"')


def marked(mark: str, said: str, more: str = "") -> str:
    """`mark` is `output` or `data`; the rules that a model is told name both."""
    inside = re.sub(r"<(?=/?(?:output|data)\b)", "<\\\\", said, flags=re.IGNORECASE)
    return f"<{mark}{more}>\n{inside}\n</{mark}>"
