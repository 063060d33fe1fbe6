"""What these tests are made with, in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.fixture_types import Contents, Lab, MakeChange, NewStack, UserGit, Write


@pytest.fixture
def lab(
    tmp_path: Path,
    run: Path,
    home: Path,
    write: Write,
    contents: Contents,
    repository: Write,
    user_git: UserGit,
    new_stack: NewStack,
    change: MakeChange,
) -> Lab:
    return Lab(tmp_path, run, home, write, contents, repository, user_git, new_stack, change)
