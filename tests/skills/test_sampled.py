"""Whoever writes to a tensor, it is seen where more than single elements of a large one are written to."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import assets

sampled = assets.load("amd-kernel-optimization", "sampled")


def is_seen(watched: torch.Tensor, written: Any) -> bool:
    """Whether a write to this part, of which torch counts nothing, is seen, and that it is gone again."""
    before = sampled.Sampled([watched, torch.ones(())])
    kept = written.clone()
    written.data.copy_(kept.double().add(1))
    seen = not before.are_still([watched, torch.ones(())])
    written.data.copy_(kept)
    return seen and before.are_still([watched, torch.ones(())])


SHAPES = [(256, 64), (64, 256), (100, 100), (500, 3), (3, 500), (192, 768), (64, 32, 3, 3), (8, 40, 40), (1, 2048)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_a_write_to_any_row_or_column_is_seen(shape: tuple[int, ...], turned: bool) -> None:
    tensor = torch.zeros(shape)
    given = tensor.transpose(0, -1) if turned else tensor
    rows = tensor.flatten(1) if tensor.dim() != 3 else tensor.flatten(0, 1)
    assert all(is_seen(given, row) for row in rows)
    assert all(is_seen(given, rows[:, column]) for column in range(rows.shape[1]))
    looked_at = sum(each.numel() for each in sampled.Sampled([given])._values)
    assert looked_at <= sampled.WHOLE or looked_at <= 3 * max(rows.shape)


def test_every_element_of_a_small_one_and_of_one_with_gaps_is_looked_at_and_no_other() -> None:
    small, wide = torch.zeros(16, 64), torch.zeros(2000, 7)
    assert all(is_seen(small, small[at : at + 1]) for at in range(16))
    assert all(is_seen(wide[:, 3], wide[at : at + 1, 3]) for at in range(0, 2000, 97))
    before = sampled.Sampled([wide[:, 3]])
    wide[:, 4] = 1.0
    assert before.are_still([wide[:, 3]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64])
def test_it_may_be_of_any_type(dtype: torch.dtype) -> None:
    tensor = torch.zeros(128, 32).to(dtype)
    before = sampled.Sampled([tensor])
    assert before.are_still([tensor])
    tensor.data.copy_(torch.ones(128, 32))
    assert not before.are_still([tensor])


def test_nan_is_no_change_and_the_sign_of_zero_is_one() -> None:
    tensor = torch.full((64, 64), float("nan"))
    before = sampled.Sampled([tensor, zero := torch.zeros(2)])
    assert before.are_still([tensor, zero])
    assert not before.are_still([tensor, -zero])


def test_what_has_no_elements_in_memory_is_no_obstacle() -> None:
    odd = [torch.empty(0, 4), torch.ones(3, device="meta"), torch.eye(2).to_sparse(), torch.ones(2).expand(600, 2)]
    assert sampled.Sampled(odd).are_still(odd)
