"""Results as a worker saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import guest
from tools.judging import tensors


@pytest.fixture
def path(tmp_path: Path) -> Any:
    """Saves a value, and answers with its file."""

    def save(value: Any) -> Path:
        into = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        guest.module("tensors").save(str(into), value)
        return into

    return save


@pytest.fixture
def saved(path: Any) -> Any:
    """Saves a value, and reads it as the host does."""
    return lambda value: tensors.read(path(value))
