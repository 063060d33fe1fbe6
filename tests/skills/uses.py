"""Each asset that keeps something of a module, in use in the same small network, beside the plain one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets


def load(name: str) -> Any:
    return assets.load("amd-kernel-optimization", name)


graphed, grouped_experts, packed_linear = map(load, ("graphed", "grouped_experts", "packed_linear"))
padded_linear, remembered, routed_linear = map(load, ("padded_linear", "remembered", "routed_linear"))
SIZE = 128


class Net(nn.Module):
    """Two layers of the same input, one after them, an empty place, a buffer, and attributes."""

    def __init__(self, settings: dict[str, list[float]] | None = None) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 4)
        self.bare, self.more = nn.Linear(4, 4, bias=False), nn.Sequential()
        self.scale, self.settings, self.held = 2.0, settings or {"shift": [0.0]}, torch.ones(())
        self.register_buffer("offset", torch.ones(4))
        self.asset()

    def asset(self) -> None:
        """What uses one says so here."""

    def both(self, x: torch.Tensor) -> Any:
        return self.first(x), self.second(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.both(x)
        out: torch.Tensor = self.more(self.bare(self.last(torch.tanh(first) * second)))
        return out * self.scale * self.held + self.settings["shift"][0] + self.offset


class Packed(Net):
    def asset(self) -> None:
        self.packed = packed_linear.PackedLinear(self.first, self.second)

    def both(self, x: torch.Tensor) -> Any:
        return self.packed(x, self.first, self.second)


def compiled() -> Any:
    model = Packed()
    model.compile(backend="eager", fullgraph=True)
    return model


class Padded(Net):
    def asset(self) -> None:
        padded_linear.pad_linears(self)


class Routed(Net):
    def asset(self) -> None:
        routed_linear.route_linears(self)


@graphed.graphed
class Graphed(Net):
    pass


class Expert(Net):
    """With a number for each tensor that is no parameter, of which grouped experts have none."""

    def asset(self) -> None:
        del self._buffers["offset"]
        self.__dict__ |= {"offset": 1.0, "held": 1.0}


class Remembering(Net):
    """Counts how often it ran."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        RUNS.append(1)
        return super().forward(x)


RUNS: list[int] = []
CHOSEN = torch.arange(32).view(16, 2) % 4
X = torch.randn(16, SIZE, generator=torch.Generator().manual_seed(0))


def experts() -> nn.ModuleList:
    settings = {"shift": [0.0]}  # of each by itself they would not be alike
    return nn.ModuleList([Expert(settings) for _ in range(4)])


def experts_one_by_one(made: Any, x: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(x.shape[0], 4)
    for number, expert in enumerate(made):
        rows, nth = torch.where(number == CHOSEN)
        out.index_add_(0, rows, expert(x[rows]) * (1.0 + nth[:, None]))
    return out


def experts_together(made: Any, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = grouped_experts.grouped_experts(made, x, CHOSEN, torch.ones(16, 2) + torch.arange(2))
    return out


def ran_once(model: Any, x: torch.Tensor) -> bool:
    """Whether what was called a moment ago is remembered."""
    before = len(RUNS)
    remembered.remembered(model, x)
    return len(RUNS) == before


def is_together(made: Any, x: torch.Tensor) -> bool:
    group = grouped_experts._groups.get(made)
    return group is not None and group.code is not None and group.is_packed()


def has_gaps(model: Any, x: torch.Tensor) -> bool:
    return bool(model.first.weight.stride(0) > SIZE)


IN_PLACE = {"in place", "a checkpoint", "through a file", "a bias in place", "a buffer in place"}
IN_PLACE |= {"uncounted", "a row uncounted", "a column uncounted", "a buffer uncounted"}
MOVED = {"moved", "another type and back"}
SETTINGS = {"an attribute", "in a container", "another container"}
PARTS = {"another layer", "another last layer", "a part more", "a bias that was none"}
CUTS = ("rows cut", "one bias for all")
MADE_AGAIN = {"assigned", "data", "another parameter", "turned"}


@dataclass(frozen=True)
class Use:
    """How an asset is used, and after which changes it still serves."""

    make: Callable[[], nn.Module]
    serves: Callable[[Any, torch.Tensor], object]
    after: set[str]
    call: Callable[[Any, torch.Tensor], torch.Tensor] = lambda model, x: model(x)
    plain: Callable[[], nn.Module] = Net
    call_plain: Callable[[Any, torch.Tensor], torch.Tensor] = lambda model, x: model(x)
    unseen: tuple[str, ...] = ()
    marks: list[pytest.MarkDecorator] = field(default_factory=list)


USES = {
    "packed_linear": Use(
        Packed,
        lambda m, x: m.packed._is_unchanged((m.first, m.second)),
        IN_PLACE | MOVED | SETTINGS | {"assigned", "copied", "pickled", "shared", "another last layer"},
    ),
    "packed_linear, compiled": Use(  # calls the layers one by one; no compiled code looks for hooks that come later
        compiled,
        lambda m, x: m.packed._weight is not None,
        IN_PLACE | MOVED | SETTINGS,
        unseen=("a hook", "another place for hooks"),
    ),
    "padded_linear": Use(Padded, has_gaps, IN_PLACE | MOVED | SETTINGS),
    "routed_linear": Use(
        Routed, lambda m, x: routed_linear._by_aiter in routed_linear._chosen.values(), IN_PLACE | MOVED | SETTINGS
    ),
    "remembered": Use(
        Remembering,
        ran_once,
        IN_PLACE | MOVED | SETTINGS | PARTS | MADE_AGAIN | {"copied"},
        call=lambda model, x: remembered.remembered(model, x),
    ),
    "grouped_experts": Use(
        experts,
        is_together,
        IN_PLACE | MOVED | {"assigned", "copied"},
        call=experts_together,
        plain=experts,
        call_plain=experts_one_by_one,
        unseen=(  # it has none
            "a buffer in place",
            "a held tensor in place",
            "a buffer uncounted",
            "a held tensor uncounted",
        ),
    ),
    "graphed": Use(
        lambda: Graphed().cuda(),
        lambda m, x: any(graphed._recorders.get(m).graphs.values()),
        IN_PLACE | MOVED | SETTINGS | PARTS | MADE_AGAIN | {"copied"},
        plain=lambda: Net().cuda(),
        marks=[pytest.mark.gpu],
    ),
}


def pair(use: Use) -> tuple[Any, Any, torch.Tensor]:
    """A plain module, one of the same weights that was called already, and an input."""
    torch.manual_seed(0)
    plain, used = use.plain().eval(), use.make().eval()
    used.load_state_dict(plain.state_dict(), strict=True)
    x = X.to(next(plain.parameters()).device)
    for _ in range(3):
        torch.testing.assert_close(use.call(used, x), use.call_plain(plain, x), rtol=1e-4, atol=1e-4)
    assert use.serves(used, x)
    return plain, used, x


Pairs = Collection[tuple[str, str]]


def each(argument: str, values: Collection[str], without: Pairs) -> pytest.MarkDecorator:
    """Every use with every value of another argument."""
    pairs = [(name, value) for name in USES for value in values if (name, value) not in without]
    cases = [pytest.param(*pair, marks=USES[pair[0]].marks) for pair in pairs]
    return pytest.mark.parametrize(("name", argument), cases)
