"""A faster way to the same result is taken for each shape where it is plainly faster. Times are made up here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
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
def test_another_way_is_taken_where_it_is_plainly_faster(
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


def test_ways_are_for_plain_tensors_of_a_device_without_gradients(
    fastest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Subclass(torch.Tensor):
        pass

    x = torch.randn(2, 3)
    assert fastest.applies(x) and fastest.applies(torch.nn.Parameter(x)) and fastest.applies(x.bfloat16())
    assert not fastest.applies(x.double()) and not fastest.applies(x.as_subclass(Subclass))
    with torch.enable_grad():
        assert not fastest.applies(x)
    with torch.autocast("cpu"):
        assert not fastest.applies(x)
    monkeypatch.setattr(fastest, "DEVICES", ("cuda",))
    assert not fastest.applies(x)


def test_where_operations_are_recorded_or_mean_more_there_is_one_way(fastest: Any) -> None:
    seen = list[bool]()

    def looked(x: torch.Tensor) -> torch.Tensor:
        seen.append(fastest.applies(x))
        return x + 1

    x = torch.randn(2, 3)
    with FlopCounterMode(display=False):
        looked(x)
    torch.vmap(looked)(x[None])
    with torch.autograd.forward_ad.dual_level():
        looked(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
    torch.jit.trace(looked, x, check_trace=False)
    assert seen == [False] * 4


def test_a_library_is_used_where_it_takes_what_it_is_known_to_take(fastest: Any) -> None:
    assert fastest.installed("copy", "deepcopy", ("x", "memo"), ("memo",)) is not None
    assert fastest.installed("copy", "deepcopy", ("x", "other")) is None
    assert fastest.installed("copy", "deepcopy", named=("deep",)) is None
    assert fastest.installed("copy", "missing") is fastest.installed("a_library_that_is_not_there", "any") is None
