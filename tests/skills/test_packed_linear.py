"""Packed layers compute what the layers would, whatever is done to those, and nothing about a checkpoint changes."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune, spectral_norm

from tests import assets

packed_linear = assets.load("amd-kernel-optimization", "packed_linear")


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


def load(model: nn.Module, assign: bool) -> nn.Module:
    generator = torch.Generator().manual_seed(7)
    state = {name: torch.randn(value.shape, generator=generator) for name, value in model.state_dict().items()}
    model.load_state_dict(state, strict=True, assign=assign)
    return model


def swap_data(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.data = parameter.data.clone() * 2
    return model


def via_file(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    return model


CHANGES: dict[str, Callable[[Any], Any]] = {
    "scaled in place": scale,
    "loaded": lambda m: load(m, False),
    "loaded by assignment": lambda m: load(m, True),
    "moved": lambda m: m._apply(torch.clone),
    "another dtype and back": lambda m: m.double().float(),
    "copied": copy.deepcopy,
    "pickled": lambda m: pickle.loads(pickle.dumps(m)),
    "through a file": via_file,
    "in shared memory": lambda m: m.share_memory(),
}
MOVES: dict[str, Callable[[Any], object]] = {
    "given new data": swap_data,
    "given a new parameter": lambda m: setattr(m.q, "weight", nn.Parameter(torch.ones(16, 8))),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_it_follows_and_stays_fused(change: Callable[[Any], Any], compiled: bool) -> None:
    plain, packed = pair(compiled=compiled)
    assert agree(plain, packed)
    before = packed
    plain, packed = change(plain), change(packed)
    if packed is not before:
        scale(before, 3)  # a copy has weights of its own
    assert agree(plain, packed)
    assert agree(scale(plain), scale(packed)), "and what is written afterwards is seen too"
    assert fused(packed)


@pytest.mark.parametrize("change", MOVES.values(), ids=list(MOVES))
def test_what_somebody_moved_stays_there_until_the_module_is_moved(change: Callable[[Any], object]) -> None:
    plain, packed = pair()
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


@pytest.mark.parametrize("change", [lambda m: prune.l1_unstructured(m.q, "weight", 0.5), lambda m: spectral_norm(m.q)])
def test_a_layer_whose_weight_is_computed_is_called_itself(change: Callable[[Any], Any]) -> None:
    plain, packed = pair()
    change(plain), change(packed)
    packed.q.load_state_dict(plain.q.state_dict())
    assert agree(plain, packed)


def test_it_steps_aside_under_transforms_and_while_it_is_traced() -> None:
    plain, packed = pair()
    x = torch.randn(3, 2, 8)
    with torch.no_grad():
        state = {name: torch.stack([p, 2 * p]) for name, p in packed.named_parameters()}
        many = torch.vmap(lambda s: torch.func.functional_call(packed, s, (x,)))(state)
        assert torch.allclose(many[0], plain(x), atol=1e-6) and torch.allclose(many[1], scale(plain, 2)(x), atol=1e-6)
        traced = torch.jit.trace(packed, (x,))
        traced.load_state_dict(plain.state_dict())
        assert torch.allclose(traced(x), plain(x), atol=1e-6)


class Adapter(nn.Module):
    """As a LoRA library wraps a layer."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def parametrize(model: Any) -> None:
    torch.nn.utils.parametrizations.orthogonal(model.q)
    with torch.no_grad():
        model.q.parametrizations.weight.original.fill_(0.5)


def another_layer(model: Any) -> None:
    torch.manual_seed(3)
    model.v = nn.Linear(8, 4)


ODD: dict[str, Callable[[Any], object]] = {
    "wrapped": lambda m: setattr(m, "q", Adapter(m.q)),
    "another": another_layer,
    "hooked": lambda m: m.k.register_forward_hook(lambda *a: a[2] * 2),
    "parametrised": parametrize,
    "with a forward": lambda m: setattr(m.k, "forward", lambda x: 2 * nn.Linear.forward(m.k, x)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("change", ODD.values(), ids=list(ODD))
def test_a_layer_that_is_more_or_another_is_called_itself(change: Callable[[Any], object], compiled: bool) -> None:
    plain, packed = pair((True, True, True), compiled=compiled)
    # torch.compile does not look for hooks and other attributes that come after it compiled, of any module
    if not compiled or change in (ODD["wrapped"], ODD["another"]):
        assert agree(plain, packed)
    change(plain)
    change(packed)
    assert agree(plain, packed)


def test_gradients_reach_the_layers() -> None:
    plain, packed = pair()
    x = torch.randn(2, 3, 8)
    plain(x).square().sum().backward()
    packed(x).square().sum().backward()
    for a, b in zip(plain.parameters(), packed.parameters(), strict=True):
        assert a.grad is not None and b.grad is not None and torch.allclose(a.grad, b.grad, atol=1e-5)


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
    for change in (lambda m: m, scale, lambda m: load(m, False), lambda m: m._apply(torch.clone)):
        assert agree(change(plain), change(packed), torch.randn(2, 3, 8))
    assert len(graphs) == 1
    assert [n.target for n in graphs[0].graph.nodes].count(F.linear) == 1


def test_on_the_meta_device_it_waits_for_real_weights() -> None:
    with torch.device("meta"):
        packed = Packed()
    assert packed.packed._weight is None
    plain = Plain()
    packed.to_empty(device="cpu").load_state_dict(plain.state_dict())
    assert agree(plain, packed) and fused(packed)
