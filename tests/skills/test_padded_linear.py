"""Rows of weights are kept apart wherever the layer is moved; values and state dicts stay the same."""

from __future__ import annotations

import copy
import pickle
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


def test_it_follows_its_weights(here: None) -> None:
    net, x = nn.Sequential(nn.Linear(128, 8)), torch.randn(3, 128)
    padded.pad_linears(net)
    other = nn.Sequential(nn.Linear(128, 8))
    net.load_state_dict(other.state_dict())
    assert gap_bytes(net[0]) == 256 and torch.equal(net(x), other(x))
    net._apply(torch.clone)
    assert gap_bytes(net[0]) == 256 and torch.equal(net(x), other(x))
    net.double()
    assert gap_bytes(net[0]) == 256 and torch.allclose(net(x.double()), other.double()(x.double()))
    for each in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(each(x.double()), net(x.double()))


def test_where_processes_work_together_or_it_is_no_plain_weight_nothing_is_done(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.Sequential(nn.Linear(128, 8))
    monkeypatch.setattr(padded, "work_together", lambda: True)
    padded.pad_linears(net)
    assert net[0].weight.is_contiguous()
    monkeypatch.undo()
    weight = net[0]._parameters.pop("weight")  # as who shares weights out does for a while
    net.double()
    net[0].register_parameter("weight", weight)
    assert gap_bytes(net[0]) == 0


def test_it_can_be_trained(here: None) -> None:
    net = nn.Sequential(nn.Linear(128, 8))
    padded.pad_linears(net)
    before = net[0].weight.detach().clone()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.randn(3, 128)).sum().backward()
    optimizer.step()
    assert gap_bytes(net[0]) == 256
    torch.testing.assert_close(net[0].weight, before - 0.1 * net[0].weight.grad)
