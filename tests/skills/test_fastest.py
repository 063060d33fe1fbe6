"""A faster way to the same result is taken for each shape where it is plainly faster. Times are made up here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tests import assets


@pytest.fixture
def fastest(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The asset, at work on a CPU. Other ways take half of the plain one's time, unless a test says otherwise."""
    found = assets.load("amd-kernel-optimization", "fastest")
    monkeypatch.setattr(found, "DEVICES", ("cpu",))
    monkeypatch.setattr(found, "seconds", lambda way, *given: 1.0 if way is plain else 0.5)
    with torch.no_grad():
        yield found


def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def added(x: torch.Tensor) -> torch.Tensor:
    return x + x


def fails(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("K % 64")


WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fails": fails,
    "another result": lambda x: x * 2.5,
    "NaN": lambda x: x * float("nan"),
    "another order in memory": lambda x: (x * 2).t().contiguous().t(),
}


def taken(fastest: Any, other: Any, *xs: torch.Tensor) -> list[Any]:
    """The ways that are chosen for these inputs."""
    chosen: dict[Any, Any] = {}
    for x in xs:
        torch.testing.assert_close(fastest.run(chosen, x.shape, plain, lambda x: [other], x), x * 2)
    return list(chosen.values())


@pytest.mark.parametrize(("seconds", "wanted"), [(0.5, added), (0.97, plain)])
def test_a_plainly_faster_way_is_taken(
    fastest: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, wanted: Any
) -> None:
    monkeypatch.setattr(fastest, "seconds", lambda way, *given: 1.0 if way is plain else seconds)
    assert taken(fastest, added, torch.randn(3, 4), torch.randn(3, 4), torch.randn(5, 4)) == [wanted] * 2


@pytest.mark.parametrize("other", WRONG.values(), ids=list(WRONG))
def test_what_fails_or_is_wrong_is_no_way(fastest: Any, other: Any) -> None:
    assert taken(fastest, other, torch.randn(3, 4)) == [plain]


def test_some_shapes_are_not_measured(fastest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "MOST", 3)
    assert taken(fastest, added, torch.randn(0, 4)) == []
    assert taken(fastest, added, *(torch.randn(rows, 4) for rows in range(1, 6))) == [added] * 3
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(fastest, "is_capturing", lambda: True)
    assert taken(fastest, added, torch.randn(3, 4)) == []


def test_ways_are_for_plain_tensors_without_gradients(fastest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Subclass(torch.Tensor):
        pass

    x = torch.randn(2, 3)
    assert fastest.applies(x) and fastest.applies(torch.nn.Parameter(x)) and fastest.applies(x.bfloat16())
    assert not fastest.applies(x.double()) and not fastest.applies(x.as_subclass(Subclass))
    with torch.enable_grad():
        assert not fastest.applies(x)
    with torch.autocast("cpu"):
        assert not fastest.applies(x)
    with FlopCounterMode(display=False):
        assert not fastest.applies(x)
    monkeypatch.setattr(fastest, "DEVICES", ("cuda",))
    assert not fastest.applies(x)


def test_a_library_is_used_where_it_takes_what_it_is_known_to_take(fastest: Any) -> None:
    assert fastest.installed("copy", "deepcopy", ("x", "memo"), ("memo",)) is not None
    assert fastest.installed("copy", "deepcopy", ("x", "other")) is None
    assert fastest.installed("copy", "deepcopy", named=("deep",)) is None
    assert fastest.installed("copy", "missing") is fastest.installed("a_library_that_is_not_there", "any") is None


class Linears(nn.Module):
    def __init__(self, asset: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 32)
        asset.route_linears(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.layer.weight, self.layer.bias)


class Activated(nn.Module):
    def __init__(self, asset: Any) -> None:
        super().__init__()
        self.asset, self.layer = asset, nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.asset.activated_linear(self.layer, x, "relu")
        return out

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layer(x))


class Attends(nn.Module):
    def __init__(self, asset: Any) -> None:
        super().__init__()
        self.attend = asset.routed_attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._by(self.attend, x)

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return self._by(F.scaled_dot_product_attention, x)

    def _by(self, attend: Any, x: torch.Tensor) -> torch.Tensor:
        heads = x.view(1, -1, 4, 16).transpose(1, 2)  # those of a position side by side
        found: torch.Tensor = attend(heads, heads, heads, is_causal=True, scale=0.3)
        return found.transpose(1, 2).reshape(-1, 64)


# the class that uses an asset, and the way beside the plain one that a CPU has
USES = {
    "routed_linear": (Linears, "_bias_apart"),
    "activated_linear": (Activated, "_epilogue"),
    "routed_attention": (Attends, "_by_flash"),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", USES)
def test_each_asset_takes_another_way_for_each_shape_by_itself(choosing: Any, name: str, compiled: bool) -> None:
    torch._dynamo.reset()
    cls, way = USES[name]
    asset = choosing(name, **{way: 0.5})
    model = cls(asset)
    if compiled:
        model.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    for rows in (1, 6):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(model(x), model.plain(x))
    assert [chosen.__name__ for chosen in asset._chosen.values()] == [way] * 2


@pytest.mark.parametrize("name", USES)
def test_gradients_get_the_plain_way(choosing: Any, name: str) -> None:
    cls, way = USES[name]
    asset = choosing(name, **{way: 0.1})
    model, x = cls(asset), torch.randn(3, 64, requires_grad=True)
    with torch.enable_grad():
        model(x).sum().backward()
    assert x.grad is not None and not asset._chosen


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", USES)
def test_ways_are_measured_on_a_device(choosing: Any, name: str, dtype: torch.dtype, compiled: bool) -> None:
    torch._dynamo.reset()
    asset = choosing(name)
    model = USES[name][0](asset).to("cuda", dtype)
    if compiled:
        model.compile()
    for rows in (1, 64, 1000):
        x = torch.randn(rows, 64, device="cuda", dtype=dtype)
        torch.testing.assert_close(model(x), model.plain(x), rtol=2e-2, atol=2e-2)
    assert len(asset._chosen) == 3
