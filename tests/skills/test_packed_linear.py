"""Packed layers compute what the layers would, whatever is done to those, and nothing about a checkpoint changes."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from tests import assets

packed_linear = assets.load("amd-kernel-optimization", "packed_linear")
LAYERS = ("q", "k", "v")


class Plain(nn.Module):
    def __init__(self, bias: tuple[bool, bool, bool] = (False, True, True)) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, n, bias=b) for n, b in zip((16, 8, 4), bias, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.q(x), self.k(x), self.v(x)], -1)


class Packed(Plain):
    def __init__(self, bias: tuple[bool, bool, bool] = (False, True, True)) -> None:
        super().__init__(bias)
        self.packed = packed_linear.PackedLinear(self.q, self.k, self.v)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(self.packed(x, self.q, self.k, self.v), -1)


def pair(bias: tuple[bool, bool, bool] = (False, True, True), compiled: bool = False) -> tuple[Plain, Packed]:
    torch._dynamo.reset()
    plain, packed = Plain(bias), Packed(bias)
    packed.load_state_dict(plain.state_dict(), strict=True)
    if compiled:
        packed.compile(backend="eager", fullgraph=True)
    return plain.eval(), packed.eval()


def agree(plain: nn.Module, packed: nn.Module, x: torch.Tensor | None = None) -> bool:
    x = torch.randn(2, 3, 8) if x is None else x
    with torch.no_grad():
        return torch.allclose(plain(x), packed(x), atol=1e-6)


def fused(packed: Packed) -> bool:
    """Whether the next call uses the packed weights."""
    with torch.no_grad():
        return bool(packed.packed._is_unchanged((packed.q, packed.k, packed.v)))


@pytest.mark.parametrize("bias", [(False,) * 3, (True,) * 3, (False, True, True)])
def test_checkpoints_load_both_ways(bias: tuple[bool, bool, bool]) -> None:
    plain, packed = pair(bias)
    assert list(plain.state_dict()) == list(packed.state_dict())
    assert fused(packed) and agree(plain, packed)
    Plain(bias).load_state_dict(packed.state_dict(), strict=True)
    assert sum(p.numel() for p in packed.parameters()) == sum(p.numel() for p in plain.parameters())
    storages = {p.untyped_storage().data_ptr() for p in (packed.q.weight, packed.k.weight, packed.v.weight)}
    assert len(storages) == 1, "memory is not doubled"
    assert packed.q.weight.untyped_storage().nbytes() == 28 * 8 * 4


def scale(model: nn.Module, factor: float = 0.875) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


def load(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(7)
    state = {name: torch.randn(value.shape, generator=generator) for name, value in model.state_dict().items()}
    model.load_state_dict(state, strict=True)
    return model


def swap_data(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.clone() * 2


def replace_weights(model: Any) -> None:
    for name in LAYERS:
        layer = getattr(model, name)
        for kind in ("weight", "bias"):
            setattr(layer, kind, nn.Parameter(getattr(layer, kind).detach().clone()))


def replace_layers(model: Any) -> None:
    for name in LAYERS:
        new = nn.Linear(8, getattr(model, name).out_features)
        new.load_state_dict(getattr(model, name).state_dict())
        setattr(model, name, new)


@pytest.mark.parametrize("change", [swap_data, replace_weights, replace_layers])
def test_what_somebody_moved_stays_there_until_the_module_is_moved(change: Callable[[Any], object]) -> None:
    plain, packed = pair((True, True, True))
    assert agree(plain, packed)
    change(plain), change(packed)
    places = [p.data_ptr() for p in packed.parameters()]
    assert agree(plain, packed) and not fused(packed)
    assert [p.data_ptr() for p in packed.parameters()] == places, "who moved them may own that memory"
    assert agree(scale(plain), scale(packed))
    packed.double().float()
    assert agree(plain, packed) and fused(packed)


def test_weights_in_one_buffer_of_their_owner_follow_it() -> None:
    plain, packed = pair()
    for model in (plain, packed):
        flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        start = 0
        for p in model.parameters():
            p.data = flat[start : start + p.numel()].view_as(p)
            start += p.numel()
        agree(model, model)
        flat.mul_(3)
    assert agree(plain, packed)


def test_weights_that_processes_share_stay_shared() -> None:
    _, packed = pair()
    packed.share_memory()
    other = pickle.loads(bytes(ForkingPickler.dumps(packed)))
    assert agree(packed, other) and agree(scale(packed), other) and not fused(other)


def test_layers_that_do_not_fit_together_are_called_one_by_one() -> None:
    model = Packed()
    model.k.double()
    assert model._apply(lambda t: t).packed._weight is None
    tied = nn.Linear(8, 8)
    assert packed_linear.PackedLinear(tied, tied)._weight is None


def test_it_compiles_into_one_graph_without_compiling_again() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    plain, packed = pair()
    packed.compile(backend=backend, fullgraph=True)
    for change in (lambda m: m, scale, load, lambda m: m._apply(torch.clone)):
        assert agree(change(plain), change(packed), torch.randn(2, 3, 8))
    assert len(graphs) == 1
    calls = [n.target for n in graphs[0].graph.nodes].count(F.linear)
    assert calls == 3, "compiled code does not see weights move, so it must read each layer's own"


def test_on_the_meta_device_it_waits_for_real_weights() -> None:
    with torch.device("meta"):
        packed = Packed()
    assert packed.packed._weight is None
    plain = Plain()
    packed.to_empty(device="cpu").load_state_dict(plain.state_dict())
    assert agree(plain, packed) and fused(packed)


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


def hold_views(model: Packed) -> None:
    """As FSDP does: no parameters, but tensors in their place."""
    for name in LAYERS:
        layer = getattr(model, name)
        for kind in ("weight", "bias"):
            value = getattr(layer, kind).detach().clone()
            delattr(layer, kind)
            setattr(layer, kind, value)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("change", [swap_data, replace_weights, hold_views, replace_layers])
def test_what_was_packed_is_let_go_when_the_layers_have_left_it(change: Callable[[Any], None], gradients: bool) -> None:
    _, packed = pair((True, True, True))
    x = torch.randn(2, 8)
    with torch.no_grad():
        packed(x)
    before = storages(packed)
    change(packed)
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            assert torch.equal(packed(x), Plain.forward(packed, x))
    assert are_gone(before)
    assert torch.equal(packed(x), Plain.forward(packed, x))


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
