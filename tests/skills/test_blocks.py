"""Attention by blocks gives what torch's gives, for masks of either kind, and knows which blocks a mask leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests import assets

ROWS, KEYS, SIZE = 300, 400, 128


@pytest.fixture
def blocks() -> Iterator[Any]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield assets.load("amd-kernel-optimization", "blocks")


def window(width: int = 40) -> torch.Tensor:
    """Each row sees the keys around it."""
    apart = torch.arange(ROWS)[:, None] - torch.arange(KEYS)
    return apart.abs() <= width


def numbers() -> torch.Tensor:
    """A window for each batch, with numbers where it lets something through, and one row that it excludes."""
    lets = torch.stack([window(30), window(60)])[:, None]
    mask = torch.where(lets, torch.randn(2, 1, ROWS, KEYS), torch.finfo(torch.float32).min)
    mask[1, 0, 7] = torch.finfo(torch.float32).min
    return mask


MASKS = {"window": window, "numbers": numbers}


def heads(groups: int = 4) -> list[torch.Tensor]:
    return [torch.randn(2, n, h, 16).transpose(1, 2) for n, h in ((ROWS, 4), (KEYS, groups), (KEYS, groups))]


def test_blocks_are_those_that_let_something_through(blocks: Any) -> None:
    mask = window()
    cut, which_cut, whole, which_whole = blocks._blocks(mask, ROWS, KEYS)
    assert cut.shape == whole.shape == (1, 1, 3) and which_cut.shape == (1, 1, 3, 4)
    for row in range(3):
        inside = [mask[row * SIZE : row * SIZE + SIZE, at * SIZE : at * SIZE + SIZE] for at in range(4)]
        expected = [at for at, tile in enumerate(inside) if tile.any()]
        counts, lists = (cut[0, 0, row], whole[0, 0, row]), (which_cut[0, 0, row], which_whole[0, 0, row])
        found = [int(at) for count, listed in zip(counts, lists, strict=True) for at in listed[:count]]
        assert sorted(found) == expected
    everything = torch.ones(2 * SIZE, 2 * SIZE, dtype=torch.bool)
    cut, _, whole, _ = blocks._blocks(everything, 2 * SIZE, 2 * SIZE)
    assert cut.sum() == 0 and whole.tolist() == [[[2, 2]]]


def test_a_mask_that_was_written_to_is_looked_at_again(blocks: Any) -> None:
    mask = window()
    before = blocks._blocks(mask, ROWS, KEYS)
    assert blocks._blocks(mask, ROWS, KEYS) is before
    mask[:] = True
    assert blocks._blocks(mask, ROWS, KEYS)[2].sum() > before[2].sum()
    with torch.inference_mode():
        uncounted = window()
        before = blocks._blocks(uncounted, ROWS, KEYS)
        uncounted[:] = True
        assert blocks._blocks(uncounted, ROWS, KEYS)[2].sum() > before[2].sum()
    del mask, uncounted
    assert len(blocks._known) == 0


def test_another_stream_waits_for_what_is_kept(blocks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[tuple[str, list[int]]] = []

    class Computed:
        def __init__(self, tensors: Any) -> None:
            happened.append(("computed", list(map(id, tensors))))

        def for_here(self, tensors: Any) -> None:
            happened.append(("waited", list(map(id, tensors))))

    monkeypatch.setattr(blocks, "Computed", Computed)
    mask = window()
    found = blocks._blocks(mask, ROWS, KEYS)
    assert blocks._blocks(mask, ROWS, KEYS) is found
    assert happened == [("computed", list(map(id, found))), ("waited", list(map(id, found)))]


def test_it_pays_where_a_quarter_of_the_blocks_is_empty(blocks: Any) -> None:
    assert blocks.pay(window(), ROWS, KEYS) and blocks.pay(numbers(), ROWS, KEYS)
    assert not blocks.pay(window(300), ROWS, KEYS)
    assert not blocks.pay(window()[:1], 1, KEYS), "decoding"
    assert not blocks.pay(window()[None, None, None], ROWS, KEYS)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("mask", list(MASKS))
def test_it_gives_what_torch_gives(blocks: Any, mask: str, device: str) -> None:
    torch.manual_seed(0)
    given = MASKS[mask]().to(device)
    for groups in (4, 2):
        query, key, value = (each.to(device) for each in heads(groups))
        with sdpa_kernel(SDPBackend.MATH):  # a fused kernel of CUDA gave 0 where all is masked
            wanted = F.scaled_dot_product_attention(query, key, value, given, scale=0.3, enable_gqa=True)
        found = blocks.attention(query, key, value, given, 0.3, True)
        tolerance = 1e-2 if device == "cuda" else 1e-4  # TF32 may be on there
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
def test_it_can_be_captured(blocks: Any) -> None:
    query, key, value = (each.cuda().bfloat16() for each in heads())
    mask = window().cuda()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            blocks.attention(query, key, value, mask.clone(), None, False)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream):
        found = blocks.attention(query, key, value, mask.clone(), None, False)
    mask.copy_(window(60))
    query.copy_(torch.randn_like(query))
    graph.replay()
    wanted = F.scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
