"""`from_shapes` gives what the function would give, and runs it once where facts of its arguments decide alone."""

from __future__ import annotations

import collections
import contextlib
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from tests import assets


class Settings:
    def __init__(self) -> None:
        self.kind, self.sizes = "causal", {"window": [4, 8]}


class Build:
    """Counts how often it ran."""

    def __init__(self, decide: Callable[..., Any]) -> None:
        self.decide, self.runs = decide, 0

    def __call__(self, *arguments: Any) -> Any:
        self.runs += 1
        return self.decide(*arguments)


@pytest.fixture
def pack() -> Any:
    torch._dynamo.reset()
    return assets.load("amd-kernel-optimization", "from_shapes")


def positions(x: torch.Tensor, settings: Any = None, shift: int = 0) -> Any:
    found = torch.arange(x.shape[1], device=x.device) + shift
    if (found.diff() == 1).all():
        return found, None
    return found, found[:, None] >= found


X = torch.randn(2, 5)


def test_it_is_found_out_once_for_each_shape(pack: Any) -> None:
    build = Build(positions)
    for x, runs in ((X, 1), (torch.zeros(2, 5), 1), (torch.randn(2, 6), 2), (X.double(), 3), (X.t(), 4), (X, 4)):
        found, mask = pack.from_shapes(build, x)
        assert mask is None and torch.equal(found, torch.arange(x.shape[1])) and build.runs == runs


def test_plain_arguments_and_settings_are_part_of_the_key(pack: Any) -> None:
    settings, build = Settings(), Build(lambda s, shift: (s.kind, s.sizes["window"][0] + shift))
    assert [pack.from_shapes(build, settings, shift)[1] for shift in (0, 1, 0)] == [4, 5, 4]
    assert build.runs == 2
    settings.sizes["window"][0] = 7
    assert pack.from_shapes(build, settings, 0) == ("causal", 7) and build.runs == 3
    other = Settings()
    assert pack.from_shapes(build, other, 0) == ("causal", 4)


def _two(x: torch.Tensor) -> Any:
    return x.shape, x.sum()


def _caught(x: torch.Tensor) -> Any:
    with contextlib.suppress(Exception):
        return bool((x > 0).all())


def _forked(x: torch.Tensor) -> Any:
    with torch.random.fork_rng():
        return torch.rand(3)


def _seed() -> None:
    torch.manual_seed(3), OWN.manual_seed(3), random.seed(3), numpy.random.seed(3)


OWN = torch.Generator()
ASKS_MORE = {
    "a value": lambda x: bool((x > 0).any()),
    "the tensor itself": lambda x: x,
    "a part of it": _two,
    "a copy": lambda x: x.clone(),
    "an error of it would be caught": _caught,
    "a value in Python": lambda x: x.tolist(),
    "its memory": lambda x: x.data_ptr(),
    "random numbers": lambda x: torch.rand(x.shape),
    "no plain result": lambda x: [object(), x.dtype],
    "an attribute that only it has": lambda x: getattr(x, "note", 0) + x.shape[0],
    "a table of tensors": lambda x: x in {1: 2},
    "what it might carry": lambda x: getattr(x, "note", 0),
    "Python's random numbers": lambda x: random.random(),
    "numpy's random numbers": lambda x: float(numpy.random.rand()),
    "random numbers of its own": lambda x: torch.rand((), generator=OWN),
    "random numbers that are put back": _forked,
    "a tensor to train": lambda x: torch.ones(x.shape[1], requires_grad=True),
    "a tensor of inference mode": torch.inference_mode()(lambda x: torch.ones(x.shape[1])),
}


@pytest.mark.parametrize("decide", ASKS_MORE.values(), ids=list(ASKS_MORE))
def test_what_needs_more_than_facts_runs_in_every_call(pack: Any, decide: Any, request: Any) -> None:
    build, x = Build(decide), torch.randn(3, 4)
    if "attribute" in request.node.callspec.id:
        x.note = 1  # type: ignore[attr-defined]
    _seed()
    expected = [decide(x), decide(x)]
    _seed()
    found = [pack.from_shapes(build, x), pack.from_shapes(build, x)]
    assert build.runs >= 2
    assert str(found) == str(expected) or "object" in str(found)
    runs = build.runs
    pack.from_shapes(build, x)
    assert build.runs == runs + 1


def test_with_generators_that_were_not_there_before_it_is_not_kept(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(x: torch.Tensor) -> float:
        monkeypatch.setitem(sys.modules, "numpy", numpy)
        return float(numpy.random.rand())

    monkeypatch.delitem(sys.modules, "numpy")
    assert len({pack.from_shapes(decide, X) for _ in range(3)}) == 3


def test_an_error_is_the_calls_own(pack: Any) -> None:
    def decide(x: torch.Tensor) -> Any:
        raise KeyError(x.shape[0])

    for _ in range(2):
        with pytest.raises(KeyError, match="2"):
            pack.from_shapes(decide, X)


class Parameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.tensor(3.0))


class Slotted:
    __slots__ = ("__dict__", "__weakref__", "size")

    def __init__(self) -> None:
        self.size = 3


class Table(dict[str, int]):
    pass


NOT_TOLD = {
    "a dict with attributes": Table(size=3),
    "a counter": collections.Counter("aab"),
    "slots beside attributes": Slotted(),
    "a module": Parameters(),
    "a weight": nn.Parameter(torch.ones(2, 2)),
    "a list": [1, 2],
    "a function": positions,
    "sparse": torch.eye(2).to_sparse(),
}


@pytest.mark.parametrize("argument", NOT_TOLD.values(), ids=list(NOT_TOLD))
def test_arguments_that_cannot_be_told_by_facts_are_not_kept(pack: Any, argument: Any) -> None:
    build = Build(lambda x, other: 1)
    for runs in (1, 2):
        assert pack.from_shapes(build, X, argument) == 1 and build.runs == runs


def test_who_writes_to_what_he_was_given_changes_nothing_of_others(pack: Any) -> None:
    def decide(x: torch.Tensor) -> Any:
        found = torch.arange(x.shape[1])
        return {"all": found, "again": found, "some": found[1:4], "wide": found[None].expand(3, -1)}

    build = Build(decide)
    for _ in range(3):
        found = pack.from_shapes(build, X)
        assert found["all"] is found["again"] and found["wide"].stride() == (0, 1)
        assert found["wide"].tolist() == 3 * [[0, 1, 2, 3, 4]]
        found["all"].data.add_(5)
        found["all"].note = 1
        assert found["some"].tolist() == [6, 7, 8] and found["wide"][2].tolist() == [5, 6, 7, 8, 9]
    assert build.runs == 1


def test_what_is_kept_is_waited_for_once_and_what_is_not_never(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(pack, "wait_for", waited.append)
    for _ in range(3):
        pack.from_shapes(positions, X)
        pack.from_shapes(_two, X)
    assert [[tensor.tolist() for tensor in tensors] for tensors in waited] == [[[0, 1, 2, 3, 4]]]


def test_what_a_recorded_graph_may_still_read_stays(pack: Any) -> None:
    settings = Settings()
    for settings.kind in ("causal", "full", "causal"):
        pack.from_shapes(positions, X, settings)
    kept = [weakref.ref(out) for found in pack._kept[positions].values() for out in found.outs if out is not None]
    settings.sizes["window"] = []
    pack.from_shapes(positions, X, settings)
    assert len(kept) == 2 and None not in [each() for each in kept]


def test_a_run_that_changes_settings_changes_them_once_and_is_not_kept(pack: Any) -> None:
    def decide(s: Settings) -> int:
        s.sizes["window"].append(0)
        return len(s.sizes["window"])

    settings = Settings()
    assert [pack.from_shapes(decide, settings) for _ in range(3)] == [3, 4, 5]


def test_which_arguments_are_the_same_is_part_of_the_key(pack: Any) -> None:
    def decide(x: torch.Tensor, context: torch.Tensor) -> bool:
        return context is x

    y = torch.randn(2, 5)
    for _ in range(2):
        assert [pack.from_shapes(decide, x, c) for x, c in ((X, y), (X, X), (y, X), (y, y))] == [False, True] * 2


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), ({"a": 1}, {"a": 1.0}), ({"a": [1]}, {"a": (1,)}), ({"a": 1, "b": 1}, {"b": 1, "a": 1})],
)
def test_settings_are_told_apart_by_type_and_order(pack: Any, one: Any, other: Any) -> None:
    settings = Settings()
    build, found = Build(lambda s: repr(s.kind)), []
    for settings.kind in (one, other) * 2:
        found.append(pack.from_shapes(build, settings))
    assert found == [repr(one), repr(other)] * 2 and build.runs == 2


def test_what_was_found_in_inference_mode_serves_training(pack: Any) -> None:
    build = Build(positions)
    with torch.inference_mode():
        pack.from_shapes(build, X)
    with torch.no_grad():
        assert not pack.from_shapes(build, X)[0].is_inference() and build.runs == 1
    assert not pack.from_shapes(build, X)[0].is_inference()


def test_who_asks_whether_gradients_are_recorded_is_told(pack: Any) -> None:
    build = Build(lambda x: torch.is_grad_enabled())
    for mode, recorded in ((torch.enable_grad, True), (torch.no_grad, False), (torch.inference_mode, False)) * 2:
        with mode():
            assert pack.from_shapes(build, X) is recorded and torch.is_grad_enabled() is recorded
    assert build.runs == 2


def test_shapes_without_an_end_are_not_all_kept(pack: Any) -> None:
    build = Build(positions)
    for size in range(1, 3 * pack.MOST):
        assert pack.from_shapes(build, torch.randn(1, size))[0].shape == (size,)
    assert len(pack._kept[build]) == pack.MOST


class Model(nn.Module):
    def __init__(self, pack: Any) -> None:
        super().__init__()
        self.pack, self.layer, self.settings = pack, nn.Linear(5, 5), Settings()
        self.build = Build(positions)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, mask = self.pack.from_shapes(self.build, x, self.settings)
        x = self.layer(x) * found
        return x if mask is None else x.masked_fill(mask, 0.0)


def test_compiled_code_uses_what_was_found_and_follows_the_settings(pack: Any) -> None:
    torch.manual_seed(0)
    model = Model(pack).eval()
    with torch.no_grad():
        expected = model(X)
        compiled = torch.compile(model, backend="eager")
        for _ in range(2):
            torch.testing.assert_close(compiled(X), expected)
        assert model.build.runs == 1
        model.settings.kind = "full"
        compiled(X)
        assert model.build.runs == 2


def test_where_there_must_be_one_graph_there_is_one(pack: Any) -> None:
    def ask(x: torch.Tensor, decide: Callable[..., Any]) -> torch.Tensor:
        return x * pack.from_shapes(decide, x)

    decide = lambda x: torch.arange(x.shape[1])  # noqa: E731
    whole = torch.compile(ask, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(X, decide), X * torch.arange(5))
    assert not pack._kept


def test_exported_programs_hold_what_it_computes(pack: Any) -> None:
    class Exported(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x + pack.from_shapes(lambda y: torch.arange(y.shape[1]) * 2, x)

    program = torch.export.export(Exported(), (X,))
    torch.testing.assert_close(program.module()(X), X + torch.arange(5) * 2)
