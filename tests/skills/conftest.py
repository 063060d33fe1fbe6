"""What every test of an asset starts from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests import assets
from tests.skills.uses import padded_linear, routed_linear


@pytest.fixture(autouse=True)
def grad_mode() -> Iterator[None]:
    """Gradients on, as torch has them: a worker that ran in this process has turned them off for good."""
    with torch.enable_grad():
        yield


@pytest.fixture
def no_grad(grad_mode: None) -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a CPU, too, where aiter's product is the fastest."""
    torch._dynamo.reset()
    for asset in (padded_linear, routed_linear.fastest):
        monkeypatch.setattr(asset, "DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(routed_linear, "_aiter", lambda: F.linear)
    monkeypatch.setattr(routed_linear, "_ways", lambda *given: [routed_linear._by_aiter])
    seconds = {routed_linear._by_aiter: 0.5}
    monkeypatch.setattr(routed_linear.fastest, "seconds", lambda way, *given: seconds.get(way, 1.0))
    with torch.no_grad():
        yield


@pytest.fixture
def choosing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Loads an asset that chooses between ways, with no shape measured yet, to work on a CPU, too. A way takes the
    seconds that are said, 1 where nothing is said.
    """

    def load(name: str, **seconds: float) -> Any:
        asset = assets.load("amd-kernel-optimization", name)
        monkeypatch.setattr(asset.fastest, "DEVICES", ("cpu", "cuda"))
        if seconds:
            monkeypatch.setattr(asset.fastest, "seconds", lambda way, *given: seconds.get(way.__name__, 1.0))
        return asset

    with torch.no_grad():
        yield load
