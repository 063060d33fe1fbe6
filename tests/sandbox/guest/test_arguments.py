"""What an entry declares as arguments reaches the target as it was, or is refused by name."""

from __future__ import annotations

import collections
import enum
import functools
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import guest

tensors: Any = guest.module("tensors")
WorkloadProblem: Any = guest.module("workload").WorkloadProblem


class Kind(enum.Enum):
    MEAN = "mean"
    SUM = "sum"


@dataclass
class Batch:
    x: torch.Tensor
    n: int = field(init=False)

    def __post_init__(self) -> None:
        self.n, self.rows = 7, self.x.shape[0]


@dataclass(frozen=True, slots=True)
class Span:
    x: torch.Tensor
    end: int = field(init=False, default=3)
    unset: int = field(init=False)


class Plain:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


def handed_over(value: Any, folder: Path) -> Any:
    path = str(folder / "x")
    tensors.save_flat(path, *tensors.given(value))
    return tensors.load(path)


OF_TORCH = (
    torch.float64,
    torch.channels_last,
    torch.sparse_csr,
    torch.device("cuda"),
    torch.Size([2, 3]),
    torch.Size([]),
)
NUMBERS = (np.float16("inf"), np.float64(0.1), np.int64(-3), np.uint64(2**64 - 1), np.bool_(True), np.complex64(1 + 2j))
OTHERS = (
    {(1, "a")},
    torch.ones(2).max(0),
    slice(1, None, 2),
    range(3, 30, 4),
    2 - 1.5j,
    Kind.SUM,
    Kind,
    torch.nn.ReLU,
    ([range(2), {"x": torch.int8}],),
)
KEYS = ([("a", "b"), ("b", "a")], [1.5, 2.5], [None, "x"], [np.int64(3), 3.5], [Kind.SUM, 0], [3, 1])


@pytest.mark.parametrize("value", [*OF_TORCH, *NUMBERS, *OTHERS], ids=repr)
def test_a_setting_arrives_as_it_was(value: Any, tmp_path: Path) -> None:
    found = handed_over({"x": torch.ones(2), "setting": value}, tmp_path)["setting"]
    assert type(found) is type(value) and found == value


def test_a_device_with_a_number_arrives_where_the_tensors_on_it_do(tmp_path: Path) -> None:
    assert handed_over((torch.device("cuda:3"),), tmp_path) == (torch.device("cuda:0"),)


@pytest.mark.parametrize("keys", KEYS, ids=repr)
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_a_dictionary_keeps_its_keys(kind: Any, keys: list[Any], tmp_path: Path) -> None:
    given = kind((key, torch.full((2,), float(index))) for index, key in enumerate(keys))
    (found,) = handed_over((given,), tmp_path)
    assert type(found) is kind and list(found) == keys and [type(key) for key in found] == [type(key) for key in keys]
    assert [tensor[0].item() for tensor in found.values()] == [0.0, 1.0]


def test_a_dataclass_that_makes_a_field_itself_arrives_whole(tmp_path: Path) -> None:
    batch, span = handed_over((Batch(torch.ones(5, 2)), Span(torch.zeros(2))), tmp_path)
    assert (type(batch), batch.n, batch.rows, batch.x.shape) == (Batch, 7, 5, (5, 2))
    assert (type(span), span.end, span.x.shape) == (Span, 3, (2,)) and not hasattr(span, "unset")
    batch.n = 8
    assert handed_over((batch,), tmp_path)[0].n == 8, "what was written to it since stays"


def test_a_cache_of_a_library_arrives_with_its_classes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    cache = transformers.DynamicCache()
    cache.update(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    (found,) = handed_over((cache,), tmp_path)
    assert found.get_seq_length() == 3
    found.update(torch.ones(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), 0)
    found.update(torch.ones(1, 2, 1, 4), torch.zeros(1, 2, 1, 4), 1)  # a layer that it makes of a class it holds
    assert [layer.get_seq_length() for layer in found.layers] == [4, 1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"x": torch.ones(1), "act": torch.relu}, "argument act is a builtin_function_or_method"),
        ({"x": torch.ones(1), "act": lambda x: x}, "argument act is a function"),
        ((torch.ones(1), {frozenset()}), "argument 1 is a set"),
        ((torch.ones(1), np.array([object()])), "argument 1 is a numpy.ndarray"),
        ((torch.ones(1), torch.Generator()), "argument 1 is a torch._C.Generator"),
        (({"mask": [1, functools.partial(print)]},), "argument 0.mask.1 is a functools.partial"),
        ((Plain(threading.Lock()),), "argument 0.x is a _thread.lock"),  # type: ignore[arg-type]
        ((torch.nn.Linear(1, 1),), "argument 0 is a torch.nn.modules.linear.Linear"),
        ((type("Local", (), {}),), "argument 0 is a type"),
        ({"adj": torch.eye(3).to_sparse()}, "argument adj is a torch.sparse_coo tensor"),
        ({"adj": [torch.eye(3).to_sparse()]}, "argument adj.0 is a torch.sparse_coo tensor"),
    ],
)
def test_what_cannot_be_handed_over_is_refused_by_name(value: Any, words: str) -> None:
    with pytest.raises(WorkloadProblem) as problem:
        tensors.given(value)
    assert problem.value.kind == "bad_declaration"
    assert problem.value.message == f"{words}, which cannot be handed over"


def test_a_tensor_that_is_given_twice_arrives_as_one_and_its_copy_as_another(tmp_path: Path) -> None:
    x = torch.rand(1000)
    arrived = handed_over({"x": x, "rest": [x, x.clone()]}, tmp_path)
    again, copy = arrived["rest"]
    assert again is arrived["x"] and copy is not again and torch.equal(copy, x) and torch.equal(again, x)
    assert 2 * 4000 < (tmp_path / "x").stat().st_size < 3 * 4000


def test_what_results_often_hold_beside_tensors_arrives_by_value(tmp_path: Path) -> None:
    value = {"boxes": np.eye(3, dtype=np.float32), "won": {3, 1}, "text": b"x", "last": collections.deque([1, 2], 2)}
    arrived = handed_over(value, tmp_path)
    assert np.array_equal(arrived["boxes"], value["boxes"]) and arrived["boxes"].dtype == np.float32  # type: ignore
    assert {**arrived, "boxes": 0} == {**value, "boxes": 0} and arrived["last"].maxlen == 2


def test_what_differs_in_plain_values_alone_has_the_same_layout() -> None:
    def layout(value: Any) -> Any:
        return tensors.layout(tensors.given(value)[0])

    x, y = torch.rand(2), torch.rand(2)
    assert layout((x, 1, {"a": "b"})) == layout((y, 2, {"a": "c"}))
    assert (
        layout((x, x)) != layout((x, y)) and layout((x, 1)) != layout((1, x)) and layout((x, [x])) != layout((x, (x,)))
    )
    assert tensors.layout(None) is None


def test_what_a_result_holds_beside_tensors_stays_opaque(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    tensors.save(path, {"y": torch.ones(1), "how": torch.relu, "which": {frozenset()}})
    structure, _ = tensors.Loaded(path).opened()
    assert [node["t"] for node in structure["items"]] == ["tensor", "opaque", "opaque"]
    assert tensors.load(path)["how"] is None


@pytest.mark.parametrize(
    "node",
    [
        {"t": "torch", "items": [{"t": "value", "v": "torch.hub"}]},
        {"t": "torch", "items": [{"t": "value", "v": "torch.load"}]},
        {"t": "numpy", "items": [{"t": "value", "v": "object"}, {"t": "value", "v": 1}]},
        {"t": "class", "class": "os:system"},
        {"t": "sequence", "class": "subprocess:Popen", "items": []},
        {"t": "pairs", "class": "subprocess:Popen", "items": []},
        {"t": "member", "class": "os:system", "v": "x"},
        {"t": "object", "class": "os:system", "keys": [], "items": []},
        {"t": "called", "items": []},
    ],
    ids=str,
)
def test_a_node_makes_nothing_but_what_its_kind_says(node: Any) -> None:
    with pytest.raises((KeyError, ValueError, TypeError, AttributeError)):
        tensors.unflatten(node, [])


INPUTS = """
import torch

def build():
    return torch.relu

def inputs(seed):
    return {"x": torch.ones(1), "scale": {frozenset()}}
"""
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, act):
        super().__init__()

def get_inputs():
    return [torch.ones(1)]

def get_init_inputs():
    return [%s]
"""


def test_an_entry_that_declares_what_cannot_be_handed_over_is_refused(made: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    entries = (INPUTS, MODEL % "torch.relu", MODEL % "torch.nn.ReLU")
    of_set, of_relu, of_class = (made(entry, "reference") for entry in entries)
    for reference in (of_set, of_relu, of_class):
        reference.op_describe()
    with pytest.raises(WorkloadProblem, match="argument scale is a set"):
        of_set.op_draw({path: 1})
    with pytest.raises(WorkloadProblem, match="argument 0 of Model is a builtin_function_or_method"):
        of_relu.op_save_init(path)
    of_class.op_save_init(path)
    assert tensors.load(path) == [torch.nn.ReLU]
