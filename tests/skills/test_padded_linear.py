"""Rows of weights are kept apart wherever the layer is moved; values and state dicts stay the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests import assets

padded = assets.load("amd-kernel-optimization", "padded_linear")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded, "DEVICES", ("cpu",))


def gap_bytes(layer: Any) -> int:
    return int((layer.weight.stride(0) - layer.weight.shape[1]) * layer.weight.element_size())


def test_elsewhere_nothing_is_done() -> None:
    net = nn.Sequential(nn.Linear(128, 8))
    padded.pad_linears(net)
    assert net[0].weight.is_contiguous() and isinstance(net[0], nn.Linear)


@pytest.mark.parametrize(("features", "gap"), [(128, 256), (256, 256), (64, 0), (130, 0)])
def test_rows_that_begin_in_the_same_channel_are_moved_apart(here: None, features: int, gap: int) -> None:
    net, x = nn.Sequential(nn.Linear(features, 8), nn.ReLU()), torch.randn(3, features)
    wanted, state = net(x), {name: value.clone() for name, value in net.state_dict().items()}
    padded.pad_linears(net)
    assert gap_bytes(net[0]) == gap and torch.equal(net(x), wanted)
    assert list(net.state_dict()) == list(state) and all(torch.equal(net.state_dict()[n], v) for n, v in state.items())


def test_nothing_is_done_across_processes_or_to_other_weights(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Linear(128, 8))
    monkeypatch.setattr(padded, "work_together", lambda: True)
    padded.pad_linears(net)
    assert net[0].weight.is_contiguous()
    monkeypatch.undo()
    weight = net[0]._parameters.pop("weight")  # as who shares weights out does for a while
    net.double()
    net[0].register_parameter("weight", weight)
    assert gap_bytes(net[0]) == 0


@pytest.fixture(params=[("routed_linear", "route_linears"), ("padded_linear", "pad_linears")], ids=lambda each: each[0])
def change(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One of the functions that change the class of layers, at work on a CPU, too."""
    name, function = request.param
    asset = assets.load("amd-kernel-optimization", name)
    monkeypatch.setattr(getattr(asset, "fastest", asset), "DEVICES", ("cpu",))
    return getattr(asset, function)


class Attention(nn.Module):
    def __init__(self, packed_linear: Any) -> None:
        super().__init__()
        self.q, self.k, self.out = nn.Linear(128, 8), nn.Linear(128, 8), nn.Linear(128, 8)
        self.packed = packed_linear(self.q, self.k)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_layers_that_are_packed_stay_packed(change: Any, device: str) -> None:
    packed_linear = assets.load("amd-kernel-optimization", "packed_linear").PackedLinear
    with torch.device(device):
        model = nn.Sequential(Attention(packed_linear), nn.Linear(128, 8))
    change(model)
    stays = [type(layer) is nn.Linear for layer in (model[0].q, model[0].k, model[0].out, model[1])]
    assert stays == [True, True, False, False]
    if device == "meta":
        model.to_empty(device="cpu")
    with torch.no_grad():
        q, k = model[0].packed(torch.zeros(3, 128), model[0].q, model[0].k)
    assert q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr(), "one product gave both"


def test_layers_of_other_classes_are_none(change: Any) -> None:
    class Own(nn.Linear):
        pass

    model = nn.Sequential(Own(128, 8), nn.LazyLinear(4), nn.Conv1d(2, 2, 1))
    before = list(map(type, model))
    change(model)
    assert list(map(type, model)) == before
