"""Layers get another class where they may: not those that are packed together, which has to stay as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests import assets


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
    assert [type(layer) is nn.Linear for layer in (model[0].q, model[0].k, model[0].out, model[1])] == [
        True,
        True,
        False,
        False,
    ]
    model.to_empty(device="cpu") if device == "meta" else None
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
