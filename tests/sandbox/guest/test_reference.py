"""Other values of the same shapes."""

from __future__ import annotations

import pytest
import torch

from sandbox.guest.reference import VARIANTS


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_whole_numbers_are_turned_round_or_made_the_same(dtype: torch.dtype) -> None:
    given = torch.tensor([[5, 0], [3, 4]], dtype=dtype)
    same, turned = VARIANTS["constant"](given), VARIANTS["negated"](given)
    assert same.dtype == turned.dtype == dtype
    assert same.tolist() == [[5, 5], [5, 5]] and turned.tolist() == [[4, 3], [0, 5]]
    assert VARIANTS["scaled"](given) is given


def test_other_numbers_are_changed() -> None:
    given = torch.tensor([2.0, -1.0])
    assert [VARIANTS[name](given).tolist() for name in ("negated", "scaled", "constant")] == [
        [-2.0, 1.0],
        [8.0, -4.0],
        [2.0, 2.0],
    ]
    assert VARIANTS["constant"](torch.zeros(0)).numel() == 0
