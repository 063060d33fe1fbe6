"""A layer and its activation run as one product where that is right and plainly faster, else one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests import assets

GELU = nn.GELU(approximate="tanh")


@pytest.fixture
def asset(monkeypatch: pytest.MonkeyPatch) -> Any:
    """With no shape measured yet, on this device."""
    found = assets.load("amd-kernel-optimization", "activated_linear")
    monkeypatch.setattr(found.fastest, "DEVICES", ("cpu",))
    with torch.no_grad():
        yield found


def epilogue_takes(asset: Any, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(asset.fastest, "seconds", lambda way, *given: {"_epilogue": seconds}.get(way.__name__, 1.0))


def ways(asset: Any) -> list[str]:
    return [way.__name__ for way in asset._chosen.values()]


@pytest.mark.parametrize(("seconds", "wanted"), [(0.5, "_epilogue"), (0.97, "_in_turn")])
def test_one_product_where_it_is_plainly_faster(
    asset: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, wanted: str
) -> None:
    epilogue_takes(asset, monkeypatch, seconds)
    layer = nn.Linear(16, 8)
    for shape in ((3, 16), (2, 5, 16)):
        x = torch.randn(shape)
        torch.testing.assert_close(asset.activated_linear(layer, x, "relu"), F.relu(layer(x)))
    assert ways(asset) == [wanted] * 2, "each shape by itself"


def test_an_epilogue_of_another_function_is_no_way(asset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_addmm_activation", lambda bias, x, weight, use_gelu: F.gelu(bias + x @ weight))
    epilogue_takes(asset, monkeypatch, 0.1)
    layer, x = nn.Linear(64, 64), torch.randn(64, 64)
    result = asset.activated_linear(layer, x, GELU)
    assert torch.equal(result, GELU(layer(x))) and ways(asset) == ["_in_turn"]


class Adapter(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


def odd(case: str, layer: nn.Linear, module: nn.Module) -> tuple[nn.Module, nn.Module]:
    """A layer and an activation that are more than they look."""
    own = layer.forward
    match case:
        case "no bias":
            return nn.Linear(16, 8, bias=False), module
        case "adapter":
            return Adapter(16, 8), module
        case "a forward of its own":
            layer.forward = lambda x: own(x) * 2  # type: ignore[method-assign]
        case "an activation with a forward of its own":
            module.forward = lambda x: x * 2
        case "hook":
            layer.register_forward_hook(lambda module, args, result: result + 1)
        case "hooked activation":
            module.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        case "weights of a type of their own":
            layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Quantised))
        case "weights of another precision":
            layer.bias = nn.Parameter(layer.bias.detach().double())
        case "SiLU":
            return layer, nn.SiLU()
        case "GELU":
            return layer, nn.GELU()
    return layer, module


class Quantised(torch.Tensor):
    """A tensor that is more than a plain one."""


@pytest.mark.parametrize(
    "case",
    [
        "gradients",
        "autocast",
        "vector",
        "device",
        "no bias",
        "adapter",
        "a forward of its own",
        "an activation with a forward of its own",
        "hook",
        "hooked activation",
        "weights of a type of their own",
        "SiLU",
        "GELU",
    ],
)
def test_else_the_layer_and_the_activation_are_called(asset: Any, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    epilogue_takes(asset, monkeypatch, 0.1)
    layer, module = odd(case, nn.Linear(16, 8), nn.ReLU())
    x = torch.randn(16) if case == "vector" else torch.randn(3, 16)
    if case == "device":
        monkeypatch.setattr(asset.fastest, "DEVICES", ("cuda",))
    with torch.set_grad_enabled(case == "gradients"), torch.autocast("cpu", enabled=case == "autocast"):
        result = asset.activated_linear(layer, x, module)
        assert torch.equal(result, module(layer(x))) and ways(asset) == []
        assert result.requires_grad == (case == "gradients")


def test_an_activation_that_is_exchanged_is_seen(asset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    epilogue_takes(asset, monkeypatch, 0.5)
    layer, x, gelu = nn.Linear(16, 8), torch.randn(3, 16), nn.GELU(approximate="tanh")
    monkeypatch.setattr(torch, "_addmm_activation", lambda bias, x, weight, use_gelu: GELU(bias + x @ weight))
    torch.testing.assert_close(asset.activated_linear(layer, x, gelu), GELU(layer(x)))
    assert ways(asset) == ["_epilogue"]
    gelu.approximate = "none"
    assert torch.equal(asset.activated_linear(layer, x, gelu), F.gelu(layer(x)))


def test_after_many_shapes_nothing_more_is_measured(asset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    epilogue_takes(asset, monkeypatch, 0.5)
    monkeypatch.setattr(asset.fastest, "MOST", 2)
    layer = nn.Linear(16, 8)
    for rows in (1, 2, 3):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(asset.activated_linear(layer, x, "relu"), F.relu(layer(x)))
    assert ways(asset) == ["_epilogue"] * 2


def test_a_compiled_model_chooses_when_it_runs(asset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    epilogue_takes(asset, monkeypatch, 0.5)
    layer = nn.Linear(16, 8)
    relu = nn.ReLU()
    call = torch.compile(lambda x: asset.activated_linear(layer, x, relu) + 1, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 16)
    torch.testing.assert_close(call(x), F.relu(layer(x)) + 1)
    assert ways(asset) == ["_epilogue"]


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
