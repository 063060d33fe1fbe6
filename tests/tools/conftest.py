"""A referee on the red team's target, for tests of what works with one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.evals.arena import Arena


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    opened = Arena.open(tmp_path_factory.mktemp("arena"), sys.executable)
    yield opened
    opened.referee.close()
