"""Whether a module still is what it was when it was looked at; `test_changes.py` has what else may become of one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from tests import assets

Watched = assets.load("amd-kernel-optimization", "watched").Watched


class Scaled(nn.Module):
    """Has a part, a weight, a place for another, a buffer, and attributes of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(2, 2, bias=False).requires_grad_(False)
        self.register_buffer("shift", torch.ones(2))
        self.register_parameter("later", None)
        self.scale, self.shift_by, self.sizes, self.settings, self.table = 2, 0.0, [1, 2], object(), torch.ones(2)


@pytest.fixture
def module() -> Scaled:
    return Scaled().eval()


@pytest.fixture
def watched(module: Scaled) -> Any:
    return Watched(module)


def set_data(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Scaled], object]:
    return lambda m: setattr(m.part.weight, "data", change(m.part.weight.data))


def new_hooks(module: Scaled) -> object:
    module.part._forward_hooks = OrderedDict()
    return module.part.register_forward_hook(lambda *given: None)


def swap_places(module: Scaled) -> object:
    del module.later
    return module.register_parameter("latest", nn.Parameter(torch.ones(2)))


def rename(module: Scaled) -> None:
    module.settings_2 = module.settings
    del module.settings


# what becomes of it, and which answers stay: that each tensor lies, is set, and holds what it did
LIES: dict[str, Callable[[Scaled], object]] = {
    "a part": lambda m: setattr(m, "part", nn.Linear(2, 2, bias=False)),
    "no part": lambda m: m._modules.__setitem__("part", None),
    "a weight": lambda m: setattr(m.part, "weight", nn.Parameter(torch.ones(2, 2))),
    "its data": set_data(lambda t: torch.ones(2, 2)),
    "a tensor that is no buffer": lambda m: setattr(m, "table", torch.ones(2)),
}
HOLDS: dict[str, Callable[[Scaled], object]] = {
    "a weight": lambda m: m.part.weight.add_(1),
    "a buffer": lambda m: m.shift.add_(1),
    "a tensor": lambda m: m.table.add_(1),
}
SET: dict[str, Callable[[Scaled], object]] = {
    "another value": lambda m: setattr(m, "scale", 3),
    "the same value of another type": lambda m: setattr(m, "scale", 2.0),
    "zero of another sign": lambda m: setattr(m, "shift_by", -0.0),
    "in a container": lambda m: m.sizes.append(3),
    "another container": lambda m: setattr(m, "sizes", [1, 2, 3]),
    "another object": lambda m: setattr(m, "settings", object()),
    "an object that is gone": lambda m: setattr(m, "settings", None),
    "another name": rename,
    "one attribute more": lambda m: setattr(m, "more", 1),
    "training": lambda m: m.part.train(),
    "a hook": lambda m: m.part.register_forward_hook(lambda *given: None),
    "a hook in another place for hooks": new_hooks,
}
PLACES: dict[str, Callable[[Scaled], object]] = {
    "a weight for an empty place": swap_places,
    "a weight where there was none": lambda m: setattr(m, "later", nn.Parameter(torch.ones(2))),
    "another weight": lambda m: m.part.register_parameter("more", nn.Parameter(torch.ones(2))),
    "another buffer": lambda m: m.register_buffer("more", torch.ones(2)),
    "a part of what had none": lambda m: m.part.add_module("more", nn.Identity()),
    "transposed": set_data(lambda t: t.t()),
    "shorter": set_data(lambda t: t[:1]),
    "as another type": set_data(lambda t: t.view(torch.int32)),
}
# (lies, is set, holds) as before; None where it is not asked
ANSWERS = (
    ("lies", LIES, (False, None, False)),
    ("holds", HOLDS, (True, True, False)),
    ("set", SET, (True, False, None)),
    ("places", PLACES, (None, False, False)),
)
CASES = {f"{what}: {name}": (deed, stays) for what, deeds, stays in ANSWERS for name, deed in deeds.items()}


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_it_is_told_apart(module: Scaled, watched: Any, name: str, keeps: bool) -> None:
    assert watched.is_unchanged() and watched.is_set_as_before()
    deed, stays = CASES[name]
    held = [module.part, module.part.weight, module.part.weight.data, module.table] if keeps else []
    deed(module)
    answers = watched.lies_as_before(), watched.is_set_as_before(), watched.holds_as_before()
    assert all(wanted in (None, found) for wanted, found in zip(stays, answers, strict=True)), answers
    assert not watched.is_unchanged(), held


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


class Alike(nn.Linear):
    """Says of itself that it is equal to any other."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    __hash__ = nn.Linear.__hash__


def test_parts_that_are_equal_and_parts_in_another_order_are_others() -> None:
    module = nn.Sequential(OrderedDict(one=Alike(2, 2), other=nn.ReLU())).eval()
    watched = Watched(module)
    assert watched.is_unchanged()
    one = module.one
    module.one = Alike(2, 2)
    assert not watched.lies_as_before() and not watched.is_unchanged()
    del module.one
    module.one = one
    assert watched.lies_as_before() and not watched.is_set_as_before() and not watched.is_unchanged()


@pytest.mark.parametrize("number", [3, 2000])
def test_tensors_in_containers_are_not_all_that_is_known(module: Scaled, number: int) -> None:
    module.sizes = [torch.ones(1)] * number  # type: ignore[assignment,list-item]
    assert not Watched(module).knows_all


@pytest.mark.parametrize("kind", ["all are swapped", "one that wraps others"])
def test_weights_that_torch_swaps_can_still_be_swapped(module: Scaled, kind: str) -> None:
    if kind == "one that wraps others":
        wrapping = TwoTensor(torch.ones(2, 2), torch.ones(2, 2))
        module.part.weight = nn.Parameter(wrapping, requires_grad=False)
    torch.__future__.set_swap_module_params_on_conversion(kind == "all are swapped")
    try:
        watched = Watched(module)
        assert watched.lies_as_before() and not watched.knows_all and not watched.only_computes
        module.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert not watched.is_unchanged()


class Cache(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Asked(Cache):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return next(x + self.training for _ in range(1))


class Named(Cache):
    @property
    def learns(self) -> bool:
        return bool(getattr(self, "training"))  # noqa: B009 - so that the name is a text


class Unread(Cache):
    forward = torch.add  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("part", "only_computes"),
    [
        (Cache(), True),
        (nn.Linear(2, 2), True),
        (Asked(), False),
        (Named(), False),
        (Unread(), False),
        (nn.Dropout(), False),
        (nn.BatchNorm1d(2), False),
        (nn.MultiheadAttention(2, 1), False),
        (nn.Sequential(Cache()), False),
    ],
)
def test_a_part_in_training_only_computes_where_its_code_never_asks(part: nn.Module, only_computes: bool) -> None:
    assert Watched(nn.Sequential(part).eval()).only_computes
    whole = nn.Sequential(part.eval()).eval()
    part.train()
    assert Watched(whole).only_computes is only_computes


def test_a_module_of_inference_tensors_and_one_without_anything() -> None:
    with torch.inference_mode():
        watched = Watched(Scaled().eval())
        assert not watched.is_counted and watched.is_unchanged()
    watched = Watched(nn.Identity().eval())
    assert watched.is_unchanged() and watched.only_computes
