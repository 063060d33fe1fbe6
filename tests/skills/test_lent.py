"""Large outputs of recorded calls are handed out as they are, and written over once nobody holds them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests import assets

graphed = assets.load("amd-kernel-optimization", "graphed")


@graphed.graphed
class Wide(nn.Module):
    """Its first output is lent, and its second is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, graphed.SMALL)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layer(x)
        return y, y.mean(dim=-1)


@pytest.mark.gpu
@pytest.mark.parametrize("inference", [False, True])
def test_a_large_output_is_lent_while_a_loop_holds_one_and_lasts_where_more_are_held(inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():
        wide, places = Wide().cuda().eval(), list[int]()

        def is_right(x: torch.Tensor, out: tuple[torch.Tensor, torch.Tensor]) -> bool:
            wanted = torch.nn.functional.linear(x, wide.layer.weight, wide.layer.bias)
            return torch.allclose(out[0], wanted, atol=1e-4) and torch.allclose(out[1], wanted.mean(dim=-1), atol=1e-4)

        for x in torch.randn(8, 2, 16, device="cuda"):
            out = wide(x)
            places.append(out[0].data_ptr())
            assert is_right(x, out) and out[0].is_inference() == inference
            out[0].fill_(float("nan"))
        assert len({*places[-6:]}) == 2, "two recordings take turns, and nothing is copied"
        recorder = graphed._recorders.get(wide)
        assert recorder.small == graphed.SMALL
        inputs = torch.randn(8, 2, 16, device="cuda")
        held = [wide(x) for x in inputs]
        assert all(map(is_right, inputs, held)) and recorder.small > graphed.SMALL
        assert (
            len({out[0].data_ptr() for out in held}) == 8
            and sum(graph is not None for graph in recorder.graphs.values()) == 1
        )


@pytest.mark.parametrize(
    "hold", [lambda lent: lent[1:], lambda lent: lent.untyped_storage(), lambda lent: lent.numpy()]
)
def test_what_is_lent_is_back_once_nothing_holds_its_memory(hold: Any) -> None:
    large, shared, given = torch.ones(8), torch.ones(8), torch.ones(8)
    outputs = [large, 7, shared, shared[1:], torch.ones(2), given, torch.eye(3).to_sparse()]
    lent = graphed.Lent(outputs, [given], 16)
    assert [*lent.tensors] == [0]
    for _ in range(2):
        out = list(outputs)
        lent.put_into(out)
        assert out[0] is not large and out[0].data_ptr() == large.data_ptr()
        assert all(one is other for one, other in zip(out[1:], outputs[1:], strict=True))
        kept = hold(out[0])
        assert not lent.is_back()
        del out
        assert not lent.is_back()
        del kept
        assert lent.is_back()
