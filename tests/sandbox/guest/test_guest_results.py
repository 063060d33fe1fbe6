"""What the guest says of a result beside its values: its class, whose memory it is in, whether a gradient flows."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest
from tools.judging import tensors

ENTRY = """
import torch

class Tensor(torch.Tensor):
    pass

ANSWERS = {
    "its own": lambda x: x * 1,
    "the argument": lambda x: x,
    "a view of it": lambda x: x[1:],
    "a subclass with the plain name": lambda x: torch.Tensor._make_subclass(Tensor, x * 1),
    "a parameter": lambda x: torch.nn.Parameter(x * 1),
}

def inputs(seed):
    return (torch.ones(4),)

def build():
    return ANSWERS[ANSWER]
"""


def saved(answer: str, folder: Path, mode: str = "inference") -> tensors.Leaf:
    """The one tensor of a result, as the host reads it."""
    (folder / "bench.py").write_text(f"ANSWER = {answer!r}\n" + ENTRY)
    made: Any = guest.module("worker").Worker(str(folder), "bench.py")
    before = torch.is_grad_enabled()
    try:
        made.op_build(mode)
        guest.module("tensors").save(str(folder / "in"), (torch.ones(4),))
        made.op_stage(str(folder / "in"))
        made.op_call(1)
        made.op_save(str(folder / "out"))
    finally:
        torch.set_grad_enabled(before)
    return tensors.read(folder / "out").leaves[0]


@pytest.mark.parametrize(
    ("answer", "borrowed"),
    [
        ("its own", ""),
        ("the argument", "argument 0"),
        ("a view of it", "argument 0"),
    ],
)
@pytest.mark.guard("a result in the caller's memory, or without gradient")
def test_it_says_whose_memory_a_result_shares(answer: str, borrowed: str, tmp_path: Path) -> None:
    assert saved(answer, tmp_path).borrowed == borrowed


def test_only_torchs_own_classes_have_a_plain_name(tmp_path: Path) -> None:
    assert saved("its own", tmp_path).kind == "Tensor"
    assert saved("a parameter", tmp_path).kind == "Parameter"
    assert saved("a subclass with the plain name", tmp_path).kind == "bench:Tensor"


@pytest.mark.guard("a result in the caller's memory, or without gradient")
def test_it_says_whether_a_gradient_flows_back(tmp_path: Path) -> None:
    assert saved("a parameter", tmp_path, "training").grad
    assert not saved("its own", tmp_path, "training").grad


class Cyclic:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("op", ["op_collect", "op_poison"])
def test_what_only_cycles_hold_is_freed_when_asked(op: str, tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(ENTRY)
    worker: Any = guest.module("worker").Worker(str(tmp_path), "bench.py")
    gc.disable()
    try:
        held = weakref.ref(Cyclic())
        assert held() is not None
        getattr(worker, op)()
    finally:
        gc.enable()
    assert held() is None


KEEPS = """
import torch

class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.register_buffer("cache", torch.zeros(2, 4), persistent=False)
        self.held = torch.zeros(4)

    def forward(self, x, scale):
        self.cache[0] = x
        return self.cache[:1], self.weight, self.held[:2], scale, super().forward(x)

made = Model()

def build():
    return made

def constants():
    return [1]

def state():
    return {"held": made.held}

def inputs(seed):
    return torch.ones(4), torch.ones(1)
"""


def test_what_a_model_goes_on_with_is_not_overwritten(tmp_path: Path) -> None:
    """A cache whose position is set back is masked, which zero times NaN is not."""
    (tmp_path / "bench.py").write_text(KEEPS)
    worker: Any = guest.module("worker").Worker(str(tmp_path), "bench.py")
    before = torch.is_grad_enabled()
    try:
        worker.op_build()
        guest.module("tensors").save(str(tmp_path / "in"), (torch.ones(4), torch.ones(1)))
        worker.op_stage(str(tmp_path / "in"), constants=[1])
        worker.op_call(1)
        returned = worker.result[1]
        worker.op_poison()
    finally:
        torch.set_grad_enabled(before)
    assert [bool(tensor.isnan().any()) for tensor in returned] == [False, False, False, False, True, False]


def test_two_models_are_never_there_at_once_for_the_truth(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(ENTRY.replace("ANSWERS[ANSWER]", "torch.nn.Linear(4, 4)"))
    reference: Any = guest.module("reference").Reference(str(tmp_path), "bench.py")
    before = torch.is_grad_enabled()
    try:
        reference.op_build()
        held, there, build = weakref.ref(reference.built), list[bool](), reference.workload.build

        def watched(init: Any) -> Any:
            there.append(held() is not None)
            return build(init)

        reference.workload.build = watched
        reference.op_precision("float64")
    finally:
        torch.set_grad_enabled(before)
    assert there == [False] and reference.built.weight.dtype == torch.float64
