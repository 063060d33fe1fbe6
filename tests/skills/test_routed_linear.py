"""Products of aiter, a stand-in here, are right where they are the fastest way; see test_fastest.py."""

from __future__ import annotations

import copy
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.fixture
def aiter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What the asset uses of aiter: a product that believes in a marker, and the shuffle that sets it."""
    package, products, shuffle = ModuleType("aiter"), ModuleType("aiter.tuned_gemm"), ModuleType("aiter.ops.shuffle")

    def gemm_a16w16(A: Any, B: Any, bias: Any = None, otype: Any = None) -> torch.Tensor:
        return F.linear(A, B.flip(0) if getattr(B, "is_shuffled", False) else B, bias)

    def shuffle_weight(x: torch.Tensor) -> torch.Tensor:
        shuffled = x.flip(0)
        shuffled.is_shuffled = True  # type: ignore[attr-defined]
        return shuffled

    products.gemm_a16w16, shuffle.shuffle_weight = gemm_a16w16, shuffle_weight  # type: ignore[attr-defined]
    for module in (package, products, ModuleType("aiter.ops"), shuffle):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return products


def net_of(routed: Any) -> tuple[nn.Sequential, nn.Sequential]:
    plain = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4, bias=False))
    nn.init.normal_(plain[0].bias)
    net = copy.deepcopy(plain)
    routed.route_linears(net)
    return net, plain


@pytest.mark.parametrize("way", ["_by_aiter", "_by_aiter_shuffled"])
def test_a_product_of_aiter_adds_the_bias_once(choosing: Any, aiter: ModuleType, way: str) -> None:
    routed = choosing("routed_linear", **{way: 0.5})
    net, plain = net_of(routed)
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(net(x), plain(x))
    assert [chosen.__name__ for chosen in routed._chosen.values()] == [way, way]
    assert isinstance(net[0], nn.Linear) and list(net.state_dict()) == list(plain.state_dict())


def test_a_product_that_takes_other_arguments_is_not_used(choosing: Any, aiter: ModuleType) -> None:
    aiter.gemm_a16w16 = lambda inp, weights, bias: inp  # type: ignore[attr-defined]
    assert choosing("routed_linear")._aiter() is None


def test_lost_markers_of_weights_are_seen(choosing: Any, aiter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    routed = choosing("routed_linear", _by_aiter_shuffled=0.5)
    net, plain = net_of(routed)
    x = torch.randn(3, 16)
    net(x)
    for _, copied in routed._shuffled.values():
        del copied.is_shuffled
    torch.testing.assert_close(net(x), plain(x))
    routed._shuffled.clear()
    monkeypatch.setattr(routed, "_aiter", lambda: (aiter.gemm_a16w16, lambda weight: weight.flip(0)))
    with pytest.raises(RuntimeError, match="did not mark"):
        net(x)
