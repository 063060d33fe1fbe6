"""Experts that are moved, loaded or trained: `grouped_experts` keeps nothing of them, and trains what a loop does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from tests import assets
from tests.skills.test_grouped_experts import agree, by_loop, calls, draw, make, together

Given = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def asset() -> Any:
    return assets.load("amd-kernel-optimization", "grouped_experts")


@pytest.fixture
def grouped(asset: Any) -> Any:
    return asset.grouped_experts


@pytest.fixture
def experts(grouped: Any) -> nn.ModuleList:
    """Those that run together."""
    experts = make()
    with torch.no_grad():
        assert agree(grouped, experts, *draw(32, 2, 4)) and together(grouped, experts, *draw(32, 2, 4))
    return experts


def given_to(experts: nn.ModuleList) -> Given:
    x, chosen, weights = draw(32, 2, 4)
    dtype = next(experts.parameters()).dtype
    return x.to(dtype), chosen, weights.to(dtype)


def load(experts: nn.ModuleList) -> None:
    experts.load_state_dict({name: value.clone() for name, value in experts.state_dict().items()}, assign=True)


MOVES: dict[str, Callable[[nn.ModuleList], object]] = {
    "another type": lambda e: e.to(torch.float64),
    "another type and back": lambda e: e.double().float(),
    "elsewhere": lambda e: e._apply(torch.clone),
    "loaded by assignment": load,
}


@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
@torch.no_grad()
def test_nothing_stays_behind_and_they_run_together_again(grouped: Any, experts: nn.ModuleList, move: Any) -> None:
    before = [StorageWeakRef(parameter.untyped_storage()) for parameter in experts.parameters()]
    move(experts)
    gc.collect()
    assert all(storage.expired() for storage in before), "without another call"
    given = given_to(experts)
    assert agree(grouped, experts, *given) and agree(grouped, experts, *given)
    assert together(grouped, experts, *given) and agree(grouped, experts, *given)
    assert len({parameter.untyped_storage()._cdata for parameter in experts.parameters()}) == 6
    for parameter in experts.parameters():
        parameter.mul_(0.5)
    assert agree(grouped, experts, *given) and together(grouped, experts, *given)


@torch.no_grad()
def test_memory_of_somebody_else_stays_theirs(grouped: Any, experts: nn.ModuleList) -> None:
    flat = torch.cat([parameter.reshape(-1) for parameter in experts.parameters()])
    sizes = [parameter.numel() for parameter in experts.parameters()]
    for parameter, part in zip(experts.parameters(), flat.split(sizes), strict=True):
        parameter.data = part.view_as(parameter)
    given = given_to(experts)
    for _ in range(4):
        assert agree(grouped, experts, *given)
        flat.mul_(0.5)
    assert agree(grouped, experts, *given)


@torch.no_grad()
def test_weights_of_one_call_move_nothing(grouped: Any, experts: nn.ModuleList) -> None:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = experts

        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = grouped(self.experts, *given)
            return out

    given, other = given_to(experts), make()
    wanted = by_loop(other, *given)
    state = {f"experts.{name}": nn.Parameter(value.clone()) for name, value in other.named_parameters()}
    for model in (experts, other):
        for parameter in model.parameters():
            parameter.mul_(0.5)
    before = [parameter.data_ptr() for parameter in (*experts.parameters(), *state.values())]
    for _ in range(3):
        torch.testing.assert_close(torch.func.functional_call(Mixture(), state, given), wanted)
        assert agree(grouped, experts, *given) and together(grouped, experts, *given)
    assert [parameter.data_ptr() for parameter in (*experts.parameters(), *state.values())] == before


class Square(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.silu(self.up(x)))
        return out


SAME_ADDRESS: dict[str, Callable[[Any], object]] = {
    "a bias corrected": lambda e: setattr(e[1].up.bias, "data", e[1].up.bias.data + 1),
    "a weight turned": lambda e: setattr(e[1].up.weight, "data", e[1].up.weight.data.t()),
    "all weights turned": lambda e: [setattr(each.up.weight, "data", each.up.weight.data.t()) for each in e],
    "one bias for all": lambda e: setattr(e[1].up.bias, "data", e[1].up.bias.data[:1]),
    "no bias": lambda e: e[1].up.register_parameter("bias", None),
    "a forward of its own": lambda e: setattr(e[1].up, "forward", lambda x: x),
}


@pytest.mark.parametrize("change", SAME_ADDRESS.values(), ids=list(SAME_ADDRESS))
@torch.no_grad()
def test_other_data_is_seen_wherever_it_lies(grouped: Any, change: Callable[[Any], object]) -> None:
    experts, given = nn.ModuleList([Square() for _ in range(4)]).eval(), draw(32, 2, 4)
    assert agree(grouped, experts, *given)
    change(experts)
    for _ in range(3):
        assert agree(grouped, experts, *given)


@torch.no_grad()
def test_weights_are_not_moved_while_a_graph_is_captured(
    asset: Any, grouped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts, given = make(), draw(32, 2, 4)
    before = [parameter.data_ptr() for parameter in experts.parameters()]
    monkeypatch.setattr(asset, "is_capturing", lambda: True)
    assert agree(grouped, experts, *given)
    assert [parameter.data_ptr() for parameter in experts.parameters()] == before
    monkeypatch.undo()
    assert agree(grouped, experts, *given) and together(grouped, experts, *given)


def trained(experts: nn.ModuleList) -> list[bool]:
    """Of each expert, whether its weights have gradients."""
    return [all(parameter.grad is not None for parameter in expert.parameters()) for expert in experts]


@pytest.mark.parametrize("rows", [0, 32])
def test_experts_without_rows_get_gradients_of_zeros_where_the_loop_calls_them(grouped: Any, rows: int) -> None:
    x, _, weights = (each[:rows] for each in draw(32, 2, 4))
    chosen = torch.tensor([[0, 2]]).expand(rows, 2)
    skipped, called, wanted = make(), make(), make()
    by_loop(wanted, x, chosen, weights).sum().backward()
    made = grouped(called, x, chosen, weights, all_called=True)
    made.sum().backward()
    assert made.shape == (rows, 9) and trained(called) == trained(wanted) == [True] * 4
    for one, other in zip(called.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    made = grouped(skipped, x, chosen, weights)
    assert made.shape == (rows, 9) and made.requires_grad == bool(rows)
    if rows:
        made.sum().backward()
    assert trained(skipped) == [bool(rows), False] * 2


@torch.no_grad()
def test_processes_that_work_together_meet_in_each_expert(grouped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    experts, alike, (x, _, weights) = make(8), make(8), draw(32, 2, 8)
    assert agree(grouped, alike, *draw(64, 4, 8)) and together(grouped, alike, *draw(64, 4, 8))
    chosen = torch.tensor([[0, 2]]).expand(32, 2)
    assert calls(grouped, experts, x, chosen, weights, all_called=True) == 2
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert calls(grouped, experts, x, chosen, weights, all_called=True) == 8
    for each in (experts, alike):
        assert calls(grouped, each, x[:0], chosen[:0], weights[:0], all_called=True) == 8
    assert calls(grouped, experts, x, chosen, weights) == 2
