"""Results that are the same but for rounding are told from others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import assets


@pytest.fixture(scope="module")
def agree() -> Any:
    return assets.load("amd-kernel-optimization", "agreement").agree


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_agrees(agree: Any, dtype: torch.dtype) -> None:
    wanted = torch.linspace(-1, 1, 64, dtype=torch.float64).to(dtype)
    apart = wanted.clone()
    apart[0] *= 1.25
    other = torch.float32 if dtype is torch.float64 else torch.float64
    assert agree(wanted.clone(), wanted) and not agree(apart, wanted)
    assert not agree(wanted[:1], wanted) and not agree(wanted.to(other), wanted)
    assert not agree(wanted * float("nan"), wanted)


def test_nothing_agrees_with_infinity_and_nothing_with_nothing(agree: Any) -> None:
    wanted = torch.tensor([float("inf"), 1.0])
    assert not agree(torch.tensor([5.0, 7.0]), wanted) and not agree(wanted.clone(), wanted)
    assert agree(torch.empty(0, 3), torch.empty(0, 3))


def test_float64_is_compared_in_float64(agree: Any) -> None:
    wanted = torch.ones(4, dtype=torch.float64)
    assert not agree(wanted + 1e-9, wanted)
