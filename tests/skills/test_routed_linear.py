"""The fastest right way is taken for each shape, and only where it is plainly faster. aiter is a stand-in here."""

from __future__ import annotations

import copy
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests import assets


@pytest.fixture
def routed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The asset with no shape measured yet, on this device."""
    found = assets.load("amd-kernel-optimization", "routed_linear")
    monkeypatch.setattr(found.fastest, "DEVICES", ("cpu",))
    with torch.no_grad():
        yield found


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


def times(routed: Any, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """What each way is said to take; 1 s where nothing is said."""
    monkeypatch.setattr(routed.fastest, "seconds", lambda way, *given: seconds.get(way.__name__, 1.0))


def net_of(routed: Any) -> tuple[nn.Sequential, nn.Sequential]:
    plain = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4, bias=False))
    nn.init.normal_(plain[0].bias)
    net = copy.deepcopy(plain)
    routed.route_linears(net)
    return net, plain


def ways(routed: Any) -> list[str]:
    return [way.__name__ for way in routed._chosen.values()]


def test_another_way_is_taken_where_it_is_plainly_faster(routed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, plain = net_of(routed)
    times(routed, monkeypatch, _bias_apart=0.5)
    for rows in (3, 5):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(net(x), plain(x))
    assert ways(routed) == ["_bias_apart", "linear"] * 2, "each shape by itself; no bias, no other way"


@pytest.mark.parametrize("way", ["_by_aiter", "_by_aiter_shuffled"])
def test_a_product_of_aiter_adds_the_bias_once(
    routed: Any, aiter: ModuleType, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    net, plain = net_of(routed)
    times(routed, monkeypatch, **{way: 0.5})
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(net(x), plain(x))
    assert ways(routed) == [way, way]


def test_a_product_that_takes_other_arguments_is_not_used(routed: Any, aiter: ModuleType) -> None:
    aiter.gemm_a16w16 = lambda inp, weights, bias: inp  # type: ignore[attr-defined]
    assert routed._aiter() is None


def test_shuffled_weights_follow_the_layers_own(
    routed: Any, aiter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, plain = net_of(routed)
    times(routed, monkeypatch, _by_aiter_shuffled=0.5)
    x = torch.randn(3, 16)
    torch.testing.assert_close(net(x), plain(x))
    for each in (net, plain):
        each[0].weight.mul_(0.875)
    torch.testing.assert_close(net(x), plain(x))
    state = {name: torch.randn_like(value) for name, value in plain.state_dict().items()}
    for each in (net, plain):
        each.load_state_dict(state)
    torch.testing.assert_close(net(x), plain(x))
    torch.testing.assert_close(copy.deepcopy(net)(x), plain(x))


def test_a_lost_marker_of_shuffled_weights_is_noticed(
    routed: Any, aiter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, plain = net_of(routed)
    times(routed, monkeypatch, _by_aiter_shuffled=0.5)
    x = torch.randn(3, 16)
    net(x)
    for _, copied in routed._shuffled.values():
        del copied.is_shuffled
    torch.testing.assert_close(net(x), plain(x))
    routed._shuffled.clear()
    monkeypatch.setattr(routed, "_aiter", lambda: (aiter.gemm_a16w16, lambda weight: weight.flip(0)))
    with pytest.raises(RuntimeError, match="did not mark"):
        net(x)


def test_gradients_get_the_plain_product(routed: Any) -> None:
    net, plain = net_of(routed)
    with torch.enable_grad():
        net(torch.randn(3, 16)).sum().backward()
    assert net[0].weight.grad is not None and ways(routed) == []
    assert isinstance(net[0], nn.Linear) and list(net.state_dict()) == list(plain.state_dict())


def test_a_compiled_model_chooses_when_it_runs(routed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, plain = net_of(routed)
    times(routed, monkeypatch, _bias_apart=0.5)
    net.compile(backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 16)
    torch.testing.assert_close(net(x), plain(x))
    assert ways(routed) == ["_bias_apart", "linear"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ways_are_measured_on_a_device(dtype: torch.dtype) -> None:
    routed = assets.load("amd-kernel-optimization", "routed_linear")
    with torch.no_grad():
        net = nn.Linear(512, 1024).to("cuda", dtype)
        plain = copy.deepcopy(net)
        model = nn.Sequential(net)
        routed.route_linears(model)
        for rows in (1, 64):
            x = torch.randn(rows, 512, device="cuda", dtype=dtype)
            torch.testing.assert_close(model(x), plain(x), rtol=2e-2, atol=2e-2)
        assert len(routed._chosen) == 2
