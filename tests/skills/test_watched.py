"""Whether a module still is what it was when it was looked at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from tests import assets


class Scaled(nn.Module):
    """Has a part, a weight, a place for another, a buffer, and attributes of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(2, 2, bias=False)
        self.register_buffer("shift", torch.ones(2))
        self.register_parameter("later", None)
        self.scale, self.shift_by, self.sizes, self.settings = 2, 0.0, [1, 2], object()


@pytest.fixture
def module() -> Scaled:
    return Scaled().eval()


@pytest.fixture
def watched(module: Scaled) -> Any:
    return assets.load("amd-kernel-optimization", "watched").Watched(module)


def replace_part(module: Scaled) -> object:
    before, module.part = module.part, nn.Linear(2, 2, bias=False)
    return before


def replace_weight(module: Scaled) -> object:
    before, module.part.weight = module.part.weight, nn.Parameter(torch.ones(2, 2))
    return before


def replace_data(module: Scaled) -> object:
    before, module.part.weight.data = module.part.weight.data, torch.ones(2, 2)
    return before


def remove_part(module: Scaled) -> object:
    before = module.part
    module._modules["part"] = None
    return before


def write(module: Scaled) -> object:
    with torch.no_grad():
        module.part.weight.add_(1)
    return None


class Alike(nn.Linear):
    """Says of itself that it is equal to any other."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    __hash__ = nn.Linear.__hash__


def test_a_part_that_is_equal_is_another() -> None:
    module = nn.Sequential(Alike(2, 2)).eval()
    watched = assets.load("amd-kernel-optimization", "watched").Watched(module)
    assert watched.is_unchanged()
    module[0] = Alike(2, 2)
    assert not watched.lies_as_before() and not watched.is_unchanged()


@pytest.mark.parametrize("deed", [replace_part, replace_weight, replace_data, remove_part])
@pytest.mark.parametrize("keeps", [False, True])
def test_where_weights_and_parts_lie(
    module: Scaled, watched: Any, deed: Callable[[Scaled], object], keeps: bool
) -> None:
    assert watched.is_unchanged() and watched.is_set_as_before()
    before = deed(module)
    if not keeps:
        before = None
    assert not watched.lies_as_before() and not watched.is_unchanged(), before


def test_what_is_written_to_lies_where_it_lay(module: Scaled, watched: Any) -> None:
    write(module)
    assert watched.lies_as_before() and watched.is_set_as_before()
    assert not watched.holds_as_before() and not watched.is_unchanged()


def replace_hooks(module: Scaled) -> object:
    module.part._forward_hooks = OrderedDict()
    return module.part.register_forward_hook(lambda *given: None)


SETTINGS: dict[str, Callable[[Scaled], object]] = {
    "another value": lambda m: setattr(m, "scale", 3),
    "the same value of another type": lambda m: setattr(m, "scale", 2.0),
    "zero of another sign": lambda m: setattr(m, "shift_by", -0.0),
    "in a container": lambda m: m.sizes.append(3),
    "another container": lambda m: setattr(m, "sizes", [1, 2, 3]),
    "another object": lambda m: setattr(m, "settings", object()),
    "an object that is gone": lambda m: setattr(m, "settings", None),
    "one attribute more": lambda m: setattr(m, "more", 1),
    "training": lambda m: m.part.train(),
    "a hook": lambda m: m.part.register_forward_hook(lambda *given: None),
    "a hook in another place for hooks": replace_hooks,
}


@pytest.mark.parametrize("deed", SETTINGS.values(), ids=SETTINGS)
def test_how_it_is_set(module: Scaled, watched: Any, deed: Callable[[Scaled], object]) -> None:
    deed(module)
    assert not watched.is_set_as_before() and not watched.is_unchanged()
    assert watched.lies_as_before()


@pytest.mark.parametrize(
    ("deed", "later"),
    [
        (lambda m: setattr(m.part, "_forward_hooks", OrderedDict()), lambda m: m.part.register_forward_hook(print)),
        (lambda m: setattr(m, "scale", int("2")), lambda m: setattr(m, "scale", 3)),
        (lambda m: setattr(m, "sizes", [*m.sizes]), lambda m: m.sizes.append(3)),
        (
            lambda m: assets.load("amd-kernel-optimization", "per_module").PerModule().__setitem__(m, 1),
            lambda m: setattr(m, "more", 1),
        ),
    ],
)
def test_what_means_the_same_is_no_change_and_hides_none(module: Scaled, watched: Any, deed: Any, later: Any) -> None:
    deed(module)
    assert watched.is_set_as_before() and watched.is_set_as_before() and watched.is_unchanged()
    later(module)
    assert not watched.is_set_as_before() and not watched.is_unchanged()


def test_a_name_that_is_another_for_the_same_thing_is_a_change(module: Scaled, watched: Any) -> None:
    module.settings_2 = module.settings
    del module.settings
    assert not watched.is_set_as_before() and not watched.is_unchanged()


def swap_places(module: Scaled) -> object:
    del module.later
    return module.register_parameter("latest", nn.Parameter(torch.ones(2)))


PLACES: dict[str, Callable[[Scaled], object]] = {
    "a weight for an empty place": swap_places,
    "a weight where there was none": lambda m: setattr(m, "later", nn.Parameter(torch.ones(2))),
    "another weight": lambda m: m.part.register_parameter("more", nn.Parameter(torch.ones(2))),
    "another buffer": lambda m: m.register_buffer("more", torch.ones(2)),
    "a part of what had none": lambda m: m.part.add_module("more", nn.Identity()),
}


@pytest.mark.parametrize("deed", PLACES.values(), ids=PLACES)
def test_places_that_were_empty(module: Scaled, watched: Any, deed: Callable[[Scaled], object]) -> None:
    deed(module)
    assert not watched.is_set_as_before() and not watched.holds_as_before() and not watched.is_unchanged()


def test_parts_in_another_order() -> None:
    module = nn.Sequential(OrderedDict(one=nn.Identity(), other=nn.ReLU())).eval()
    watched = assets.load("amd-kernel-optimization", "watched").Watched(module)
    one = module.one
    del module.one
    module.one = one
    assert watched.lies_as_before() and not watched.is_set_as_before() and not watched.is_unchanged()


@pytest.mark.parametrize("number", [3, 2000])
def test_tensors_in_containers_are_not_all_that_is_known(number: int) -> None:
    module = Scaled().eval()
    module.sizes = [torch.ones(1)] * number
    assert not assets.load("amd-kernel-optimization", "watched").Watched(module).knows_all


@pytest.mark.parametrize("kind", ["all are swapped", "one that wraps others"])
def test_weights_that_torch_swaps_can_still_be_swapped(module: Scaled, kind: str) -> None:
    load = assets.load("amd-kernel-optimization", "watched")
    if kind == "one that wraps others":
        wrapping = TwoTensor(torch.ones(2, 2), torch.ones(2, 2))
        module.part.weight = nn.Parameter(wrapping, requires_grad=False)
    torch.__future__.set_swap_module_params_on_conversion(kind == "all are swapped")
    try:
        watched = load.Watched(module)
        assert watched.lies_as_before() and not watched.knows_all and not watched.only_computes
        module.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert not watched.is_unchanged()


LAYOUTS: dict[str, Callable[[nn.Parameter], object]] = {
    "transposed": lambda p: setattr(p, "data", p.data.t()),
    "shorter": lambda p: setattr(p, "data", p.data[:1]),
    "as another type": lambda p: setattr(p, "data", p.data.view(torch.int32)),
}


@pytest.mark.parametrize("deed", LAYOUTS.values(), ids=LAYOUTS)
def test_the_same_memory_read_in_another_way(
    module: Scaled, watched: Any, deed: Callable[[nn.Parameter], object]
) -> None:
    module.part.weight.requires_grad_(False)
    deed(module.part.weight)
    assert watched.lies_as_before() and not watched.is_set_as_before()
    assert not watched.holds_as_before() and not watched.is_unchanged()


def test_weights_whose_changes_are_not_counted() -> None:
    with torch.inference_mode():
        module = Scaled().eval()
        watched = assets.load("amd-kernel-optimization", "watched").Watched(module)
        assert not watched.is_counted and watched.is_unchanged()


def test_a_module_without_anything() -> None:
    watched = assets.load("amd-kernel-optimization", "watched").Watched(nn.Identity().eval())
    assert watched.is_unchanged() and watched.only_computes
