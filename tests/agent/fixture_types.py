"""What the fixtures of `conftest.py` are called with, and what all these tests apply patches under."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.repository.stack import Change, Stack
from tools.diff.patch_rules import PatchRules

UserGit = Callable[..., str]
Write = Callable[..., Path]
NewStack = Callable[..., Stack]
MakeChange = Callable[..., Change]
Contents = Callable[[Path], dict[str, Any]]
RULES = PatchRules()
TIME = 1_700_000_000
