"""Weights of convolutions lie with the channels last and stay so; values, shapes and state dicts are the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests import assets

convert = assets.load("amd-kernel-optimization", "channels_last").channels_last
KINDS = (nn.Conv2d, nn.ConvTranspose2d, nn.Conv3d, nn.ConvTranspose3d)


def nhwc(weight: torch.Tensor) -> bool:
    layout = torch.channels_last if weight.dim() == 4 else torch.channels_last_3d
    return weight.is_contiguous(memory_format=layout) and not weight.is_contiguous()


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=2)), (2, 3, 9, 9)),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Flatten()), (2, 3, 9, 9)),
        (nn.Sequential(nn.Conv3d(2, 4, 3), nn.ConvTranspose3d(4, 2, 2)), (2, 2, 5, 6, 7)),
    ],
)
def test_results_are_the_same_in_another_order(net: nn.Module, shape: tuple[int, ...]) -> None:
    before, x = copy.deepcopy(net).eval(), torch.randn(shape)
    convert(net.eval())
    convolutions = [m for m in net.modules() if isinstance(m, KINDS)]
    assert convolutions and all(nhwc(m.weight) for m in convolutions)
    torch.testing.assert_close(net(x), before(x))
    net.load_state_dict({name: value * 2 for name, value in before.state_dict().items()})
    before.load_state_dict(net.state_dict())
    moved = copy.deepcopy(net)._apply(torch.clone)
    for each in (net, moved):
        torch.testing.assert_close(each(x), before(x))
        assert all(nhwc(m.weight) for m in each.modules() if isinstance(m, KINDS))


def test_what_is_no_convolution_or_not_there_yet_is_left_alone() -> None:
    net = nn.Sequential(nn.Conv1d(4, 8, 3), nn.Linear(4, 4), nn.LazyConv2d(4, 3))
    net.position = nn.Parameter(torch.randn(1, 4, 5, 6))
    convert(net)
    assert net.position.is_contiguous() and net[0].weight.is_contiguous() and nn.parameter.is_lazy(net[2].weight)
