"""`grouped_matmul` is `torch.matmul` with the second operand's heads repeated, without repeating them."""

from __future__ import annotations

import pytest
import torch

from tests import assets

grouped_matmul = assets.load("amd-kernel-optimization", "grouped_matmul").grouped_matmul


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_it_equals_the_product_with_repeated_heads(groups: int, rows: int) -> None:
    a, b = torch.randn(3, 8, rows, 5), torch.randn(3, groups, 5, 6)
    wanted = torch.matmul(a, b.repeat_interleave(8 // groups, dim=1))
    assert torch.allclose(grouped_matmul(a, b), wanted, atol=1e-5)


def test_views_and_other_ranks_work() -> None:
    a, b = torch.randn(2, 7, 8, 5).transpose(1, 2), torch.randn(2, 6, 2, 5).transpose(1, 2)
    wanted = torch.matmul(a, b.repeat_interleave(4, dim=1).transpose(2, 3))
    assert torch.allclose(grouped_matmul(a, b.transpose(2, 3)), wanted, atol=1e-5)
    x, y = torch.randn(4, 3, 5), torch.randn(4, 5, 2)
    assert torch.equal(grouped_matmul(x, y), torch.matmul(x, y))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 1, 3, 4), (2, 8, 4, 5)),
        ((1, 8, 3, 4), (3, 1, 4, 5)),
        ((3, 8, 3, 4), (1, 1, 4, 5)),
        ((2, 1, 3, 4), (2, 0, 4, 5)),
        ((2, 4, 3, 4), (4, 5)),
    ],
)
def test_heads_and_batches_of_one_are_those_of_the_other(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = torch.randn(left), torch.randn(right)
    torch.testing.assert_close(grouped_matmul(a, b), torch.matmul(a, b))


def test_batches_of_one_meet_groups_of_heads() -> None:
    a, b = torch.randn(1, 8, 3, 4), torch.randn(3, 2, 4, 5)
    torch.testing.assert_close(grouped_matmul(a, b), torch.matmul(a, b.repeat_interleave(4, dim=1)))


def test_what_the_product_refuses_is_refused() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        grouped_matmul(torch.randn(2, 8, 3, 4), torch.randn(2, 3, 4, 5))
