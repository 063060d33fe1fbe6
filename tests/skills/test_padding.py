"""`without_padding` cuts off what the mask excludes in every row, and nothing where it cannot know."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import assets


@pytest.fixture
def without_padding() -> Any:
    torch._dynamo.reset()
    return assets.load("amd-kernel-optimization", "padding").without_padding


def mask_of(*lengths: int, width: int = 64) -> torch.Tensor:
    return (torch.arange(width) < torch.tensor(lengths)[:, None]).long()


@pytest.mark.parametrize(("lengths", "left"), [((3, 20), 24), ((8, 16), 16), ((1, 1), 8), ((64, 2), 64), ((0, 0), 64)])
def test_the_longest_row_decides(without_padding: Any, lengths: tuple[int, ...], left: int) -> None:
    mask, x = mask_of(*lengths), torch.randn(2, 64, 4)
    shorter, cut = without_padding(mask, mask, x)
    assert torch.equal(shorter, mask[:, :left]) and torch.equal(cut, x[:, :left])
    assert shorter.is_contiguous() and cut.is_contiguous()


def test_what_has_other_positions_is_left_as_it_is(without_padding: Any) -> None:
    mask, table = mask_of(5, 9), torch.randn(64, 8)
    other, positions, found, scale, nothing = without_padding(mask, table, torch.arange(64)[None], mask, 3.0, None)
    assert other is table and positions.shape == (1, 16) and found.shape == (2, 16) and scale == 3.0 and nothing is None


def test_padding_may_be_any_value(without_padding: Any) -> None:
    excluded = mask_of(5, 9) == 0
    assert without_padding(excluded, excluded, padding=True)[0].shape == (2, 16)
    added = torch.where(excluded, float("-inf"), 0.0)
    assert without_padding(added, added, padding=float("-inf"))[0].shape == (2, 16)


@pytest.mark.parametrize("mask", [None, torch.ones(2, 3, 4), torch.ones(0, 4), torch.ones(2, 64, device="meta")])
def test_where_it_cannot_know_nothing_is_cut_off(without_padding: Any, mask: Any) -> None:
    x = torch.randn(2, 64)
    assert without_padding(mask, x)[0] is x


def test_a_gap_and_padding_in_front_stay(without_padding: Any) -> None:
    mask = mask_of(20, 24).flip(1)
    assert without_padding(mask, mask)[0] is mask
    gap = mask_of(20, 24)
    gap[:, 5:9] = 0
    assert without_padding(gap, gap)[0].shape == (2, 24)


def test_code_around_it_can_be_compiled_and_exported(without_padding: Any) -> None:
    def mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, mask = without_padding(mask, x, mask)
        return (x * mask).sum(1) / mask.sum(1)

    compiled = torch.compile(mean, backend="eager")
    for lengths in ((3, 20), (8, 40), (64, 1)):
        x, mask = torch.randn(2, 64), mask_of(*lengths)
        torch.testing.assert_close(compiled(x, mask), (x * mask).sum(1) / mask.sum(1))

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return mean(x, mask)

    x, mask = torch.randn(2, 64), mask_of(3, 20)
    exported = torch.export.export(Mean(), (x, mask)).module()
    torch.testing.assert_close(exported(x, mask_of(50, 60)), mean(x, mask_of(50, 60)))


@pytest.mark.gpu
def test_compiled_it_cuts_off_as_much(without_padding: Any) -> None:
    compiled = torch.compile(lambda mask, x: without_padding(mask, x)[0])
    for lengths in ((3, 20), (100, 126), (400, 7)):
        mask, x = mask_of(*lengths, width=512).cuda(), torch.randn(2, 512, device="cuda")
        assert compiled(mask, x).shape == without_padding(mask, x)[0].shape


def test_what_follows_is_compiled_once_for_all_lengths(without_padding: Any) -> None:
    graphs = []

    def noting(graph: Any, inputs: Any) -> Any:
        graphs.append([node.name for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    def doubled(mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        mask, x = without_padding(mask, mask, x)
        return x * mask * 2

    compiled = torch.compile(doubled, backend=noting)
    for longest, left in ((20, 24), (126, 128), (7, 8)):
        assert compiled(mask_of(3, longest, width=512), torch.randn(2, 512)).shape == (2, left)
    assert len(graphs) == 1 and len(graphs[0]) == 2
