"""What the fixtures of `conftest.py` are called with, and what all these tests apply patches under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Lab:
    """The fixtures of a test that makes repositories and stacks."""

    tmp_path: Path
    run: Path
    home: Path
    write: Write
    contents: Contents
    repository: Write
    user_git: UserGit
    new_stack: NewStack
    change: MakeChange

    def stack(self, files: dict[str, str | bytes]) -> Stack:
        """The stack of a run on a repository of these files."""
        return self.new_stack(self.repository(files), self.run)


def text_at(stack: Stack, commit: str, path: str) -> str:
    return stack.git.run("show", f"{commit}:{path}").stdout.decode()
