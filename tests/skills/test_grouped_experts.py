"""`grouped_experts` gives what a loop over the experts gives, in every state that they can be in."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from tests import assets

pytestmark = pytest.mark.usefixtures("no_grad")


class Expert(nn.Module):
    def __init__(self, size: int, hidden: int, bias: bool) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(size, hidden, bias=bias), nn.Linear(size, hidden, bias=bias)
        self.down = nn.Sequential(nn.Dropout(0.1), nn.Linear(hidden, size + 1, bias=bias))
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x)) * self.scale
        return out


def make(count: int = 4, bias: bool = True) -> nn.ModuleList:
    torch.manual_seed(0)
    return nn.ModuleList([Expert(8, 12, bias) for _ in range(count)]).eval()


def by_loop(experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(len(x), 9)
    for index, expert in enumerate(experts):
        row, nth = torch.where(chosen == index)
        out.index_add_(0, row, expert(x[row]) * weights[row, nth, None])
    return out


def draw(rows: int, many: int, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(rows, count, generator=generator)
    weights, chosen = scores.topk(many, dim=-1)
    return torch.randn(rows, 8, generator=generator), chosen, weights


@pytest.fixture
def grouped() -> Any:
    return assets.load("amd-kernel-optimization", "grouped_experts").grouped_experts


def agree(grouped: Any, experts: nn.ModuleList, *given: torch.Tensor) -> bool:
    torch.testing.assert_close(grouped(experts, *given), by_loop(experts, *given), rtol=1e-5, atol=1e-5)
    return True


def calls(grouped: Any, *given: Any, **more: Any) -> int:
    """How often an expert is called by itself."""
    made, kept = [], Expert.forward
    Expert.forward = lambda self, x: (made.append(1), kept(self, x))[1]  # type: ignore[method-assign]
    try:
        grouped(*given, **more)
    finally:
        Expert.forward = kept  # type: ignore[method-assign]
    return len(made)


def together(grouped: Any, *given: Any) -> bool:
    return calls(grouped, *given) <= 1


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "many", "count"), [(32, 2, 4), (16, 1, 4), (64, 4, 4), (33, 3, 7)])
def test_it_is_the_loop(grouped: Any, rows: int, many: int, count: int, bias: bool) -> None:
    experts = make(count, bias)
    given = draw(rows, many, count)
    assert agree(grouped, experts, *given) and agree(grouped, experts, *draw(rows, many, count, seed=1))
    assert together(grouped, experts, *given)


def test_no_rows_are_as_wide_as_the_experts_make_them(grouped: Any) -> None:
    experts, given = make(), [each[:0] for each in draw(4, 2, 4)]
    assert agree(grouped, experts, *given) and together(grouped, experts, *given)


def test_few_rows_busy_experts_and_those_in_training_are_called_by_themselves(grouped: Any) -> None:
    experts = make(8)
    few = draw(1, 2, 8)
    assert agree(grouped, experts, *few) and not together(grouped, experts, *few)
    x, _, weights = draw(32, 2, 8)
    busy = torch.tensor([[0, 1]]).expand(32, 2)
    assert agree(grouped, experts, x, busy, weights) and not together(grouped, experts, x, busy, weights)
    given = draw(64, 4, 8)
    assert agree(grouped, experts, *given) and together(grouped, experts, *given)
    assert not together(grouped, experts.train(), *given)


CHANGES = {
    "another expert": lambda e: e.__setitem__(0, Expert(8, 12, True).eval()),
    "an expert of another size": lambda e: e.__setitem__(0, Expert(8, 20, True).eval()),
    "an expert more": lambda e: e.append(Expert(8, 12, True).eval()),
    "another setting of all": lambda e: [setattr(each, "scale", 2.0) for each in e],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_other_experts_are_seen(grouped: Any, change: Any) -> None:
    experts, given = make(), draw(32, 2, 4)
    agree(grouped, experts, *given)
    change(experts)
    for _ in range(2):
        assert agree(grouped, experts, *given)


class Odd(nn.Module):
    """An expert whose own code tells it apart from the others, or a batch from rows."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 9)
        self.kind = kind
        if kind == "functions":
            self.act = (F.relu, torch.tanh, F.silu, torch.sigmoid)[number]
        if kind == "methods":
            self.act = self.doubled  # type: ignore[assignment]

    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.up.weight.sum()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x.to(self.up.weight.dtype) if self.kind == "types" else x)
        if self.kind == "rows":
            h = F.normalize(h, dim=1)
        if self.kind == "pairs":
            h = torch.cat(h.chunk(2, dim=1)[::-1], dim=1)
        out: torch.Tensor = self.down(self.act(h) if hasattr(self, "act") else h)
        return out


@pytest.mark.parametrize("kind", ["functions", "methods", "rows", "pairs", "types"])
def test_experts_with_code_of_their_own_or_not_for_batches_are_called_by_themselves(grouped: Any, kind: str) -> None:
    experts = nn.ModuleList([Odd(number, kind) for number in range(4)]).eval()
    for seed in range(3):
        assert agree(grouped, experts, *draw(64, 2, 4, seed))


def test_weights_that_processes_share_stay_where_they_are(grouped: Any) -> None:
    experts, given = make().share_memory(), draw(64, 2, 4)
    places = [p.data_ptr() for p in experts.parameters()]
    assert agree(grouped, experts, *given) and agree(grouped, experts, *given)
    assert [p.data_ptr() for p in experts.parameters()] == places and not together(grouped, experts, *given)


def test_rows_of_no_expert_get_nothing(grouped: Any) -> None:
    experts = make()
    for rows in (3, 64):
        x, chosen, weights = draw(rows, 2, 4)
        chosen[::3, 0], chosen[1::3, 1] = -1, 4
        assert agree(grouped, experts, x, chosen, weights)


class Wide(nn.Module):
    """An expert whose sizes a grouped product takes."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 128, bias=bias), nn.Linear(128, 64, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.silu(self.up(x)))
        return out


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "many", "count"), [(32, 2, 4), (3, 2, 16), (1, 1, 4)])
def test_in_bfloat16_a_product_takes_as_many_rows_as_each_expert_has(
    monkeypatch: pytest.MonkeyPatch, device: str, bias: bool, rows: int, many: int, count: int
) -> None:
    asset = assets.load("amd-kernel-optimization", "grouped_experts")
    monkeypatch.setattr(asset, "JAGGED_DEVICES", (device,))
    if hasattr(F, "grouped_mm"):  # not before torch 2.10
        monkeypatch.setattr(asset, "_by_counts", None)  # nobody asks the device how many rows there are
    torch.manual_seed(0)
    experts = nn.ModuleList([Wide(bias) for _ in range(count)]).eval().to(device, torch.bfloat16)
    for seed in range(2):
        _, chosen, weights = draw(rows, many, count, seed)
        x = torch.randn(rows, 64, device=device, dtype=torch.bfloat16)
        given = (x, chosen.to(device), weights.to(device))
        wanted = x.new_zeros(rows, 64)
        for index, expert in enumerate(experts):
            row, nth = torch.where(given[1] == index)
            wanted.index_add_(0, row, (expert(x[row]) * given[2][row, nth, None]).to(x.dtype))
        torch.testing.assert_close(asset.grouped_experts(experts, *given), wanted, rtol=3e-2, atol=3e-2)
        experts[0].up.weight.mul_(0.5)


@pytest.mark.gpu
@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="torch has no grouped product before 2.10")
def test_a_grouped_product_can_be_captured() -> None:
    asset = assets.load("amd-kernel-optimization", "grouped_experts")
    experts = nn.ModuleList([Wide(True) for _ in range(8)]).eval().to("cuda", torch.bfloat16)
    _, chosen, weights = (each.to("cuda") for each in draw(16, 2, 8))
    x = torch.randn(16, 64, device="cuda", dtype=torch.bfloat16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            asset.grouped_experts(experts, x, chosen, weights)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = asset.grouped_experts(experts, x, chosen, weights)
    _, other, _ = (each.to("cuda") for each in draw(16, 2, 8, seed=1))
    chosen.copy_(other)
    graph.replay()
    torch.testing.assert_close(out, asset.grouped_experts(experts, x, other, weights), rtol=3e-2, atol=3e-2)


@pytest.fixture
def experts(grouped: Any) -> nn.ModuleList:
    """Those that run together."""
    experts = make()
    assert agree(grouped, experts, *draw(32, 2, 4)) and together(grouped, experts, *draw(32, 2, 4))
    return experts


def load(experts: nn.ModuleList) -> None:
    experts.load_state_dict({name: value.clone() for name, value in experts.state_dict().items()}, assign=True)


@pytest.mark.parametrize("move", [lambda experts: experts.double().float(), load])
def test_nothing_stays_behind_and_they_run_together_again(grouped: Any, experts: nn.ModuleList, move: Any) -> None:
    before = [StorageWeakRef(parameter.untyped_storage()) for parameter in experts.parameters()]
    move(experts)
    gc.collect()
    assert all(storage.expired() for storage in before), "without another call"
    given = draw(32, 2, 4)
    assert agree(grouped, experts, *given) and agree(grouped, experts, *given)
    assert together(grouped, experts, *given) and agree(grouped, experts, *given)
    assert len({parameter.untyped_storage()._cdata for parameter in experts.parameters()}) == 6
    for parameter in experts.parameters():
        parameter.mul_(0.5)
    assert agree(grouped, experts, *given) and together(grouped, experts, *given)


def test_memory_of_somebody_else_stays_theirs(grouped: Any, experts: nn.ModuleList) -> None:
    flat = torch.cat([parameter.reshape(-1) for parameter in experts.parameters()])
    sizes = [parameter.numel() for parameter in experts.parameters()]
    for parameter, part in zip(experts.parameters(), flat.split(sizes), strict=True):
        parameter.data = part.view_as(parameter)
    given = draw(32, 2, 4)
    for _ in range(4):
        assert agree(grouped, experts, *given)
        flat.mul_(0.5)
    assert agree(grouped, experts, *given)


def test_weights_of_one_call_move_nothing(grouped: Any, experts: nn.ModuleList) -> None:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = experts

        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = grouped(self.experts, *given)
            return out

    given, other = draw(32, 2, 4), make()
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


def test_weights_are_not_moved_while_a_graph_is_captured(grouped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    experts, given = make(), draw(32, 2, 4)
    before = [parameter.data_ptr() for parameter in experts.parameters()]
    monkeypatch.setattr(sys.modules[grouped.__module__], "is_capturing", lambda: True)
    assert agree(grouped, experts, *given)
    assert [parameter.data_ptr() for parameter in experts.parameters()] == before
    monkeypatch.undo()
    assert agree(grouped, experts, *given) and together(grouped, experts, *given)


def trained(experts: nn.ModuleList) -> list[bool]:
    """Of each expert, whether its weights have gradients."""
    return [all(parameter.grad is not None for parameter in expert.parameters()) for expert in experts]


@torch.enable_grad()
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
