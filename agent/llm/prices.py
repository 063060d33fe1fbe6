"""What models cost, by the table in `prices.toml`. A price that is not known is told as not known."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from agent.llm.account import Price


def of(model: str) -> Price | None:
    """By the longest name in the table that this one is, or begins with; a version of its own is another model."""
    name = model.rpartition("/")[2]
    fits = [each for each in _table() if re.match(re.escape(each) + r"(?![.\d])", name)]
    return _table()[max(fits, key=len)] if fits else None


@cache
def _table() -> dict[str, Price]:
    text = Path(__file__).with_name("prices.toml").read_text(encoding="utf-8")
    return {name: Price.model_validate(row) for name, row in tomllib.loads(text).items()}
