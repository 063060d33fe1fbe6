"""What the guest says of a result beside its values: its class, whose memory it is in, whether a gradient flows."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo.utils as dynamo
from torch._C._dynamo.eval_frame import set_eval_frame

from sandbox.guest import tensors as guest_tensors
from sandbox.guest.reference import rocm_versions
from sandbox.guest.values import VALUES
from tests import guest
from tests.files import write_files
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
    return ANSWERS[%r]
"""


@pytest.mark.guard("a result in the caller's memory, or without gradient")
@pytest.mark.parametrize(
    ("answer", "mode", "kind", "borrowed", "grad"),
    [
        ("its own", "inference", "Tensor", "", False),
        ("its own", "training", "Tensor", "", False),
        ("the argument", "inference", "Tensor", "argument 0", False),
        ("a view of it", "inference", "Tensor", "argument 0", False),
        ("a parameter", "training", "Parameter", "", True),
        ("a subclass with the plain name", "inference", "bench:Tensor", "", False),
    ],
)
def test_it_says_whose_memory_a_result_shares_which_class_it_has_and_whether_a_gradient_flows_back(
    made: Any, called: Any, answer: str, mode: str, kind: str, borrowed: str, grad: bool, tmp_path: Path
) -> None:
    called(made(ENTRY % answer), torch.ones(4), mode=mode).op_save(str(tmp_path / "out"))
    (leaf,) = tensors.read(tmp_path / "out").leaves
    assert (leaf.kind, leaf.borrowed, leaf.grad) == (kind, borrowed, grad)


def test_of_a_long_error_both_ends_are_told(tmp_path: Path) -> None:
    workload = guest.module("workload")
    with pytest.raises(workload.WorkloadProblem) as raised, workload.guarded("call_raised", str(tmp_path)):
        raise RuntimeError(f"the compiler fails{5000 * '.'}the cause")
    told = raised.value.message
    assert told.startswith("RuntimeError: the compiler fails") and told.endswith("the cause") and len(told) < 2010


class Cyclic:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("op", ["op_collect", "op_poison"])
def test_what_only_cycles_hold_is_freed_when_asked(op: str, made: Any) -> None:
    worker = made(ENTRY % "its own")
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


def test_what_a_model_goes_on_with_is_not_overwritten(made: Any, called: Any) -> None:
    """A cache whose position is set back is masked, which zero times NaN is not."""
    worker = called(made(KEEPS), torch.ones(4), torch.ones(1), constants=[1])
    returned = worker.result[1]
    worker.op_poison()
    assert [bool(tensor.isnan().any()) for tensor in returned] == [False, False, False, False, True, False]


def test_two_models_are_never_there_at_once_for_the_truth(made: Any) -> None:
    entry = "import torch\n\ndef build():\n    return torch.nn.Linear(4, 4)\n\ndef inputs(seed):\n    return ()\n"
    reference = made(entry, "reference")
    reference.op_build()
    held, there, build = weakref.ref(reference.built), list[bool](), reference.workload.build

    def watched(init: Any) -> Any:
        there.append(held() is not None)
        return build(init)

    reference.workload.build = watched
    reference.op_precision("float64")
    assert there == [False] and reference.built.weight.dtype == torch.float64


def test_other_values_of_the_same_shape_are_turned_round_changed_or_made_the_same() -> None:
    for dtype in (torch.int64, torch.int32, torch.uint8):
        given = torch.tensor([[5, 0], [3, 4]], dtype=dtype)
        same, turned = VALUES["constant"](given), VALUES["negated"](given)
        assert same.dtype == turned.dtype == dtype and VALUES["scaled"](given) is given
        assert same.tolist() == [[5, 5], [5, 5]] and turned.tolist() == [[4, 3], [0, 5]]
    found = {name: change(torch.tensor([2.0, -1.0])).tolist() for name, change in VALUES.items()}
    assert (found["negated"], found["scaled"]) == ([-2.0, 1.0], [8.0, -4.0])
    assert found["constant"] == [2.0, 2.0]
    for name, apart in (("nearly constant", 0.2), ("constant but for rounding", 1e-5)):
        assert found[name] == pytest.approx([2.0, 2.0], rel=apart) and len({*found[name]}) == 2, name
    assert VALUES["constant"](torch.zeros(0)).numel() == 0


@pytest.fixture
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.counters.clear()
    dynamo.clear_compilation_metrics()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("nothing_compiled")
def test_it_counts_graphs_breaks_and_what_was_compiled_again(made: Any) -> None:
    worker = made()
    counts = ("graphs", "graph_breaks", "recompiles")
    assert not any(worker.op_compiled().values())

    @torch.compile(backend="eager")
    def broken(x: torch.Tensor, number: float) -> torch.Tensor:
        x = x * number
        torch._dynamo.graph_break()
        return x + 1

    broken(torch.ones(3), 1)
    once = worker.op_compiled()
    assert [once[name] for name in counts] == [2, 1, 0] and once["reasons"]
    broken(torch.ones(3, dtype=torch.float64), 1)
    twice = worker.op_compiled()
    assert twice["graphs"] == 4 and twice["recompiles"] == 2
    assert all("\n" not in reason for reason in twice["recompile_reasons"]) and "dtype" in twice["recompile_reasons"][0]


@pytest.mark.usefixtures("nothing_compiled")
def test_as_it_is_written_nothing_compiled_runs_and_nothing_is_looked_up(made: Any, called: Any) -> None:
    """Looking functions up takes small calls twice as long, in whatever has imported torch._dynamo."""
    worker, ran, looked_up = called(made(ENTRY % "its own"), torch.ones(4)), list[int](), list[object]()

    def backend(graph: Any, inputs: Any) -> Any:
        return lambda *given: ran.append(len(given)) or graph(*given)

    compiled = torch.compile(worker.built, backend=backend)

    def built(x: torch.Tensor) -> Any:
        looked_up.append(set_eval_frame(None))
        set_eval_frame(looked_up[-1])
        return compiled(x)

    worker.built = built
    digests = [worker.op_call(1, as_written=how)["digest"] for how in (False, True, False)]
    assert len(ran) == 2 and looked_up == [None] * 3 and len({*digests}) == 1


@pytest.mark.usefixtures("nothing_compiled")
def test_it_says_why_calls_are_not_recorded(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ratchet_ops.graphed", "package.ratchet_ops.graphed", "graphed"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(given_up=[f"of {name}\nand more", f"of {name}"]))
    monkeypatch.setitem(sys.modules, "other.ratchet_ops.graphed", ModuleType("another_version"))
    assert made().op_compiled()["not_recorded"] == ["of ratchet_ops.graphed", "of package.ratchet_ops.graphed"]


def test_versions_of_rocm_are_read_from_its_files(tmp_path: Path) -> None:
    assert rocm_versions(str(tmp_path)) == {"rocm": None, "llvm": None, "hipblaslt": None}
    libraries = ("lib/libhipblaslt.so", "lib/libhipblaslt.so.1", "lib/libhipblaslt.so.1.0.70002")
    files = {".info/version": "7.0.2-56\n", "lib/llvm/lib/clang/20/include/x.h": "", **dict.fromkeys(libraries, "")}
    found = rocm_versions(str(write_files(tmp_path, files)))
    assert found == {"rocm": "7.0.2-56", "llvm": "20", "hipblaslt": "1.0.70002"}


def test_of_many_rows_each_is_as_likely_and_the_first_and_the_last_are_always_taken() -> None:
    tensor, seen = torch.empty(6437, 4), torch.zeros(6437)
    for _ in range(800):
        ((index, shape, begins, together),) = guest_tensors.some_rows([torch.empty(3), tensor], tensor.nbytes // 5)[-1:]
        assert (index, shape) == (1, [6437, 4]) and all(0 <= begin <= 6437 - together for begin in begins)
        taken = torch.zeros(6437)
        for begin in begins:
            taken[begin : begin + together] = 1
        seen += taken
    assert seen[0] == seen[-1] == 800 and seen.min() > 80 and seen.mean() == pytest.approx(160, abs=16)


def test_small_tensors_and_those_without_rows_are_taken_whole() -> None:
    assert guest_tensors.some_rows([torch.empty(100, 4), torch.empty(10**6), torch.empty(())], 1600) == []
    assert guest_tensors.some_rows([torch.empty(10**3, 4)], 0) == []


def test_a_reference_that_lets_go_of_its_model_holds_none_of_its_weights(made: Any) -> None:
    inputs = "\n\ndef inputs(seed):\n    return (torch.ones(1, 4),)\n"
    reference = made(f"import torch\n\ndef build():\n    return torch.nn.Linear(4, 4)\n{inputs}", "reference")
    reference.op_build()
    weight = weakref.ref(reference.built.weight)
    reference.op_release()
    assert weight() is None
