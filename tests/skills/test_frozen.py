"""A frozen module gives what it gave, follows its weights, and steps aside where it cannot serve a call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets

frozen_module = assets.load("amd-kernel-optimization", "frozen")


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("offset", torch.randn(4))
        self.scale = 2.0

    def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        y = self.second(torch.relu(self.first(x))) * self.scale + self.offset
        return y + y if twice else y


def freeze(cls: type[nn.Module], **settings: Any) -> Any:
    """A frozen subclass."""
    return frozen_module.frozen(**settings)(type(f"Frozen{cls.__name__}", (cls,), {}))


Frozen = freeze(Plain)


class Counts(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        self.calls += 1
        return super().forward(x, twice) + self.calls


class Breaks(Plain):
    def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        y = self.first(x)
        torch._dynamo.graph_break()
        return torch.as_tensor(self.second(torch.relu(y)) + self.offset)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def pair() -> tuple[Any, Any]:
    """A plain module, and a frozen one of the same weights that was called already."""
    torch.manual_seed(0)
    plain = Plain().eval()
    frozen = Frozen().eval()
    frozen.load_state_dict(plain.state_dict())
    frozen(torch.randn(3, 8))
    return plain, frozen


def agree(plain: Any, frozen: Any, **kwargs: Any) -> bool:
    x = torch.randn(3, 8)
    return torch.allclose(plain(x, **kwargs), frozen(x, **kwargs), atol=1e-5)


def test_what_cannot_be_compiled_in_one_piece_runs_plainly_for_good() -> None:
    plain, frozen = Breaks().eval(), freeze(Breaks)().eval()
    frozen.load_state_dict(plain.state_dict())
    for _ in range(2):
        assert agree(plain, frozen) and state(frozen).left == -1
        for net in (plain, frozen):
            net.second.weight.mul_(0.5)


def state(frozen: Any) -> Any:
    return frozen_module._states.get(frozen)


def test_it_gives_what_the_plain_call_gives_in_every_form() -> None:
    plain, frozen = pair()
    assert agree(plain, frozen) and agree(plain, frozen, twice=True)
    for rows in (1, 5, 7):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(frozen(x), plain(x))
    assert state(frozen).left == frozen_module.CHANGES - 1, "once for all of these"
    assert not torch._inductor.config.freezing


def test_its_weights_are_constants_and_copies_of_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody looks what is in them."""
    plain, frozen = pair()
    monkeypatch.setattr(frozen_module.Sampled, "are_still", lambda *given: True)
    frozen.first.weight.data.mul_(2)
    assert agree(plain, frozen)


class Holding(Plain):
    """Tensors where torch does not know of them, and a result that depends on no input."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.more = torch.ones(4), nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor, twice: bool = False) -> Any:  # type: ignore[override]
        y = super().forward(x, twice) * self.table
        for each in self.more:
            y = each(y)
        return (y, self.first.bias * 2) if twice else y


def grow_and_change(net: Any) -> None:
    torch.manual_seed(1)
    net.more.append(nn.Linear(4, 4))
    net(torch.randn(3, 8))
    net.more[-1].weight.mul_(3)


@pytest.mark.parametrize(
    "change", [lambda net: net.table.mul_(3), lambda net: setattr(net, "table", net.table * 3), grow_and_change]
)
def test_it_follows_tensors_and_parts_that_torch_does_not_guard(change: Any) -> None:
    plain, frozen = Holding().eval(), freeze(Holding)().eval()
    frozen.load_state_dict(plain.state_dict())
    assert agree(plain, frozen)
    for net in (plain, frozen):
        change(net)
    assert agree(plain, frozen) and agree(plain, frozen) and state(frozen).left >= 0


def test_a_result_that_is_a_constant_is_not_handed_out_twice() -> None:
    frozen, x = freeze(Holding)().eval(), torch.randn(3, 8)
    for _ in range(3):
        frozen(x, twice=True)[1].zero_()
    assert torch.equal(frozen(x, twice=True)[1], frozen.first.bias * 2) and state(frozen).left == -1


def test_what_others_may_write_to_is_no_constant() -> None:
    shared, hidden = freeze(Holding)().eval().share_memory(), freeze(Holding)().eval()
    hidden.hidden = [nn.Linear(4, 4)]
    for net in (shared, hidden):
        net(torch.randn(3, 8))
        assert state(net).left == -1


def test_weights_that_change_always_are_not_frozen_again_and_again() -> None:
    plain, frozen = pair()
    for _ in range(frozen_module.CHANGES + 2):
        for net in (plain, frozen):
            net.first.weight.add_(0.1)
        assert agree(plain, frozen)
    assert state(frozen).left < 0


def test_a_call_that_writes_to_a_buffer_is_left_alone() -> None:
    torch.manual_seed(0)
    plain, frozen = Counts().eval(), freeze(Counts, backend="eager")().eval()
    frozen.load_state_dict(plain.state_dict())
    assert all(agree(plain, frozen) for _ in range(4))
    assert float(frozen.calls) == 4 and state(frozen).left < 0


def test_inference_mode_and_inference_tensors() -> None:
    plain, frozen = pair()
    with torch.inference_mode():
        assert agree(plain, frozen)
        mine = Frozen().eval()
        assert mine(torch.randn(2, 8)).shape == (2, 4)
    assert state(mine).left < 0, "changes of inference tensors are not counted"


def test_nothing_keeps_it_alive() -> None:
    _, frozen = pair()
    gone = weakref.ref(frozen)
    del frozen
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None
