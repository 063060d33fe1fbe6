"""What every test of an asset starts from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def grad_mode() -> Iterator[None]:
    """Gradients on, as torch has them: a worker that ran in this process has turned them off for good."""
    with torch.enable_grad():
        yield
