"""A layer and its activation run as one product where that is right and plainly faster, else one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests import assets

GELU = nn.GELU(approximate="tanh")


@pytest.fixture
def asset(choosing: Any) -> Any:
    return choosing("activated_linear", _epilogue=0.5)


def ways(asset: Any) -> list[str]:
    return [way.__name__ for way in asset._chosen.values()]


class Adapter(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


class Quantised(torch.Tensor):
    """A tensor that is more than a plain one."""


# a layer and an activation that are more than they look, or that no epilogue computes
ODD: dict[str, Callable[[Any, Any], object]] = {
    "a forward of its own": lambda layer, act: setattr(layer, "forward", lambda x: 2 * nn.Linear.forward(layer, x)),
    "an activation with a forward of its own": lambda layer, act: setattr(act, "forward", lambda x: x * 2),
    "hook": lambda layer, act: layer.register_forward_hook(lambda module, args, result: result + 1),
    "hooked activation": lambda layer, act: act.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "weights of a type of their own": lambda layer, act: setattr(
        layer, "weight", nn.Parameter(layer.weight.detach().as_subclass(Quantised))
    ),
    "no bias": lambda layer, act: (nn.Linear(16, 8, bias=False), act),
    "adapter": lambda layer, act: (Adapter(16, 8), act),
    "SiLU": lambda layer, act: (layer, nn.SiLU()),
    "GELU": lambda layer, act: (layer, nn.GELU()),
    "vector": lambda layer, act: None,
}


@pytest.mark.parametrize("case", ODD)
def test_else_the_layer_and_the_activation_are_called(asset: Any, case: str) -> None:
    layer, module = nn.Linear(16, 8), nn.ReLU()
    others = ODD[case](layer, module)
    layer, module = others if isinstance(others, tuple) else (layer, module)
    x = torch.randn(16) if case == "vector" else torch.randn(3, 16)
    assert torch.equal(asset.activated_linear(layer, x, module), module(layer(x))) and ways(asset) == []


def test_an_activation_that_is_exchanged_is_seen(asset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, gelu = nn.Linear(16, 8), torch.randn(3, 16), nn.GELU(approximate="tanh")
    monkeypatch.setattr(torch, "_addmm_activation", lambda bias, x, weight, use_gelu: GELU(bias + x @ weight))
    torch.testing.assert_close(asset.activated_linear(layer, x, gelu), GELU(layer(x)))
    assert ways(asset) == ["_epilogue"]
    gelu.approximate = "none"
    assert torch.equal(asset.activated_linear(layer, x, gelu), F.gelu(layer(x)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("activation", "module"), [("relu", nn.ReLU()), ("gelu_tanh", GELU)])
def test_epilogues_on_a_device(dtype: torch.dtype, activation: str, module: nn.Module) -> None:
    asset = assets.load("amd-kernel-optimization", "activated_linear")
    with torch.no_grad():
        layer = nn.Linear(512, 1024).to("cuda", dtype)
        for rows in (1, 300):
            x = torch.randn(rows, 512, device="cuda", dtype=dtype)
            wanted = module(layer(x))
            given = x, layer.weight, layer.bias, activation
            assert asset.fastest.agree(asset._epilogue(*given), wanted)
            torch.testing.assert_close(asset.activated_linear(layer, x, module), wanted, rtol=2e-2, atol=2e-2)
            x[0, 0] = float("nan")
            assert torch.equal(asset._epilogue(*given).isnan(), module(layer(x)).isnan()), "NaN is handed on"
        assert len(asset._chosen) == 2
