"""What was drawn from random number generators is noticed, and can be put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import numpy
import pytest
import torch

from tests import assets

asset = assets.load("amd-kernel-optimization", "generators")
DRAWS: list[Callable[[], object]] = [lambda: torch.rand(1), random.random, numpy.random.rand]


@pytest.mark.parametrize("draw", DRAWS)
def test_what_was_drawn_is_noticed_and_put_back(draw: Callable[[], object]) -> None:
    generators = asset.Generators()
    assert not generators.have_moved()
    first = draw()
    assert generators.have_moved()
    generators.put_back()
    assert not generators.have_moved() and draw() == first


def test_no_numpy_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "numpy", None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    generators = asset.Generators()
    assert not generators.have_moved() and torch.rand(1) is not None and generators.have_moved()
