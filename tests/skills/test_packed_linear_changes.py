"""Packed layers that somebody else trains, moves or replaces: they compute what the layers would, and keep nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from tests.skills.test_packed_linear import Adapter, Packed, Plain, agree, fused, packed_linear, pair, scale

LAYERS = ("q", "k", "v")


class Square(Packed):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in LAYERS)
        self.packed = packed_linear.PackedLinear(self.q, self.k, self.v)


def one_by_one(model: Packed, x: torch.Tensor) -> torch.Tensor:
    return Plain.forward(model, x)


def storages(model: Packed) -> list[StorageWeakRef]:
    packed = model.packed._weight, model.packed._bias
    return [StorageWeakRef(tensor.untyped_storage()) for tensor in packed]


def are_gone(references: list[StorageWeakRef]) -> bool:
    gc.collect()
    return all(reference.expired() for reference in references)


@pytest.mark.parametrize("compiled", [False, True])
def test_biases_are_trained_while_weights_are_frozen(compiled: bool) -> None:
    plain, packed = pair((True, True, True), compiled)
    for model in (plain, packed):
        for name in LAYERS:
            getattr(model, name).weight.requires_grad_(False)
    assert agree(plain, packed)
    x = torch.randn(2, 3, 8)
    plain(x).square().sum().backward()
    packed(x).square().sum().backward()
    for name in LAYERS:
        torch.testing.assert_close(getattr(packed, name).bias.grad, getattr(plain, name).bias.grad)
    for model in (plain, packed):
        model.requires_grad_(False)
    assert torch.allclose(plain(x), packed(x), atol=1e-6)


SAME_ADDRESS: dict[str, Callable[[Packed], object]] = {
    "a bias corrected": lambda m: setattr(m.q.bias, "data", m.q.bias.data + 1),
    "a weight turned": lambda m: setattr(m.q.weight, "data", m.q.weight.data.t()),
    "rows cut": lambda m: [setattr(p, "data", p.data[:3]) for p in (m.q.weight, m.q.bias)],
    "one bias for all": lambda m: setattr(m.q.bias, "data", m.q.bias.data[:1]),
}


@pytest.mark.parametrize("change", SAME_ADDRESS.values(), ids=list(SAME_ADDRESS))
def test_other_data_is_seen_wherever_it_lies(change: Callable[[Packed], object]) -> None:
    model, x = Square().eval(), torch.randn(2, 8)
    with torch.no_grad():
        assert torch.allclose(model(x), one_by_one(model, x), atol=1e-6) and fused(model)
        change(model)
        assert torch.equal(model(x), one_by_one(model, x))


def move(model: Packed) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def replace_weights(model: Packed) -> None:
    for name in LAYERS:
        layer = getattr(model, name)
        for kind in ("weight", "bias"):
            setattr(layer, kind, nn.Parameter(getattr(layer, kind).detach().clone()))


def hold_views(model: Packed) -> None:
    """As FSDP does: no parameters, but tensors in their place."""
    for name in LAYERS:
        layer = getattr(model, name)
        for kind in ("weight", "bias"):
            value = getattr(layer, kind).detach().clone()
            delattr(layer, kind)
            setattr(layer, kind, value)


def replace_layers(model: Packed) -> None:
    for name in LAYERS:
        new = nn.Linear(8, getattr(model, name).out_features)
        new.load_state_dict(getattr(model, name).state_dict())
        setattr(model, name, new)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("change", [move, replace_weights, hold_views, replace_layers])
def test_what_was_packed_is_let_go_when_the_layers_have_left_it(change: Callable[[Any], None], gradients: bool) -> None:
    _, packed = pair((True, True, True))
    x = torch.randn(2, 8)
    with torch.no_grad():
        packed(x)
    before = storages(packed)
    change(packed)
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            assert torch.equal(packed(x), one_by_one(packed, x))
    assert are_gone(before)
    assert torch.equal(packed(x), one_by_one(packed, x))


def test_weights_that_come_back_after_one_call_are_still_packed() -> None:
    plain, packed = pair((True, True, True))
    mine = [weight.data for weight in packed.parameters()]
    for _ in range(3):
        assert agree(plain, packed) and fused(packed)
        for weight in packed.parameters():
            weight.data = weight.data + 1
        assert not agree(plain, packed)
        for weight, data in zip(packed.parameters(), mine, strict=True):
            weight.data = data
        assert agree(plain, packed)


def test_weights_are_moved_where_nothing_lies_and_by_swapping() -> None:
    _, packed = pair((True, True, True))
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        assert next(packed.to("meta").parameters()).is_meta
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swaps)


def test_layers_in_the_place_of_others_are_packed_when_the_module_is_moved() -> None:
    plain, packed = pair((True, True, True))
    agree(plain, packed)
    replace_layers(packed)
    assert agree(plain, packed) and not fused(packed)
    packed.double().float()
    assert agree(plain, packed) and fused(packed)


def test_layers_that_were_wrapped_for_a_while_are_packed_when_the_module_is_moved() -> None:
    plain, packed = pair((True, True, True))
    layers = {name: getattr(packed, name) for name in LAYERS}
    for name, layer in layers.items():
        setattr(packed, name, Adapter(layer))
    assert not agree(plain, packed)
    for name, layer in layers.items():
        setattr(packed, name, layer)
    assert agree(plain, packed)
    packed.double().float()
    assert agree(plain, packed) and fused(packed)


def test_weights_of_one_call_do_not_end_it() -> None:
    plain, packed = pair((True, True, True))
    state = {name: 2 * p.detach() for name, p in packed.named_parameters()}
    x = torch.randn(2, 8)
    with torch.no_grad():
        assert torch.allclose(torch.func.functional_call(packed, state, (x,)), 2 * plain(x), atol=1e-6)
    assert agree(plain, packed) and fused(packed)


def test_nothing_is_packed_where_processes_work_together(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, packed = pair((True, True, True))
    before = storages(packed)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert Packed().packed._weight is None
    places = [p.data_ptr() for p in packed.double().float().parameters()]
    assert are_gone(before) and agree(scale(plain), scale(packed)) and not fused(packed)
    assert [p.data_ptr() for p in packed.parameters()] == places
