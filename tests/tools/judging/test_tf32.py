"""What TF32 may do to float32, where the target's settings allow it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

from sandbox.guest import tensors as guest_tensors
from sandbox.guest import tf32
from sandbox.guest.reference import Reference
from tests.evals.arena import Arena
from tests.files import write_files
from tests.tools.judging.test_referee import compared
from tools.judging import accuracy, clock, correctness, tensors
from tools.judging.correctness import Compared, Rules
from tools.judging.tensors import Leaf
from tools.judging.worker import Worker
from tools.judging.workload import Workload

ROUNDING = """
import torch

def _as_tf32(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

class Coarse(torch.nn.Linear):
    def forward(self, x):
        return torch.nn.functional.linear(_as_tf32(x), _as_tf32(self.weight), self.bias)

class Model(Model):
    def __init__(self):
        super().__init__()
        for module in self.modules():
            if isinstance(module, torch.nn.Linear):
                module.__class__ = Coarse
"""
ALLOWED = {
    "tf32.py": [("if not torch.cuda.is_available() or torch.version.hip:\n        return ()", "return _PRODUCTS")]
}


def test_ten_bits_are_left_behind_the_binary_point() -> None:
    given = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -3.14159265, 0.0], dtype=torch.float64)
    expected = [1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -3.140625, 0.0]
    assert tf32.rounded(given).tolist() == expected and tf32.rounded(given).dtype == torch.float64


def test_complex_operands_are_rounded_in_both_parts_and_integers_not_at_all() -> None:
    given = torch.complex(torch.tensor([1 + 2**-12, 3.0]), torch.tensor([-1 - 2**-12, 2**-20]))
    assert tf32.rounded(given.to(torch.complex128)).tolist() == [1 - 1j, complex(3.0, 2**-20)]
    assert tf32.rounded(torch.arange(3)).tolist() == [0, 1, 2]


def leaf(values: torch.Tensor) -> Leaf:
    return Leaf("float64", tuple(values.shape), "Tensor", "cpu", values.numpy().view("uint8").reshape(-1))


def test_what_rounding_makes_another_function_of_widens_nothing() -> None:
    truth = torch.randn(16, 8, dtype=torch.float64)
    original, off = accuracy.LeafError(1e-6, 1e-6), truth * 1.001
    for rounded, row in ((off, 1e-3), (truth.flip(0), 1e-6), (truth * float("nan"), 1e-6)):
        found = accuracy.allowing(original, leaf(rounded), leaf(truth), leaf(truth))
        assert found.row == pytest.approx(row) and found.lost == 0


def test_what_an_entry_selects_is_compared_with_what_it_selects_of_the_rounded_truth(tmp_path: Path) -> None:
    asked = list[str]()
    reference: Any = SimpleNamespace(
        saved=lambda name: tmp_path / name,
        showing=lambda path: contextlib.nullcontext(str(path)),
        ask=lambda op, source, path, phase: asked.append(source),
        setting=SimpleNamespace(entry="bench.py"),
    )
    for name in ("candidate", "baseline", "truth", "rounded"):
        guest_tensors.save(str(tmp_path / name), torch.ones(2))
    reference.saved = lambda name: tmp_path / "truth"  # whatever it selects
    paths = (tmp_path / name for name in ("candidate", "baseline", "truth"))
    call = Compared("a call", "group", "", *paths, rounded=tmp_path / "rounded")
    selected, _ = correctness._Owner(Rules(outputs=True), reference).select(call)
    assert selected.rounded == tmp_path / "truth" and str(tmp_path / "rounded") in asked


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_another_rounding_counts_in_the_type_of_the_original_and_in_that_of_the_truth(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    truth = torch.randn(16, 8, dtype=torch.float64)
    off = truth * (1 + 1e-4)
    saved = {"candidate": off.float(), "baseline": truth.float(), "truth": truth, "rounded": off.to(dtype)}
    for name, values in saved.items():
        guest_tensors.save(str(tmp_path / name), values)
    call = Compared("a call", "group", "", *(tmp_path / name for name in ("candidate", "baseline", "truth")))
    for rounded, verdict in ((None, "wrong"), (tmp_path / "rounded", None)):
        found = correctness.judge_calls([replace(call, rounded=rounded)], Rules(), None)
        assert found.verdict == verdict, found.reason


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_operands_of_these_operations_alone_are_rounded(mode: type) -> None:
    x, kernel, weight, bias = (
        torch.randn(shape, dtype=torch.float64) for shape in ((2, 3, 8, 8), (4, 3, 3, 3), (5, 8), (5,))
    )
    products, convolutions = tf32._PRODUCTS, tf32._CONVOLUTIONS
    with mode():
        for operations in (products, convolutions, (*products, *convolutions)):
            maybe = [tf32.rounded if ops[0] in operations else torch.clone for ops in (convolutions, products)]
            with tf32.Rounding(operations):
                convolved, product = functional.conv2d(x, kernel), functional.linear(x[0, 0], weight, bias)
            assert torch.equal(convolved, functional.conv2d(maybe[0](x), maybe[0](kernel)))
            torch.testing.assert_close(product, functional.linear(maybe[1](x[0, 0]), maybe[1](weight), bias))


def test_where_nothing_is_set_convolutions_may_be_on_a_device_that_has_it() -> None:
    has_it = torch.cuda.is_available() and not torch.version.hip
    assert tf32.allowed() == (tf32._CONVOLUTIONS if has_it else ())


@pytest.mark.parametrize("allowed", [False, True])
def test_a_candidate_may_err_as_tf32_does_where_that_is_allowed(
    allowed: bool, arena: Arena, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """When it is checked and while it is timed."""

    def ways(self: Workload, reference: Worker) -> list[dict[str, str]]:
        """On a CPU as on a device."""
        return [{"name": self.precision, "how": "tf32"}] if reference.ask("tf32")["allowed"] else [{"how": "shaken"}]

    monkeypatch.setattr(Workload, "other_roundings", ways)
    if allowed:
        arena = arena.with_guest(tmp_path, ALLOWED)
    coarse = arena.appended(f"coarse-{allowed}", ROUNDING)
    finding = arena.referee.check(coarse).finding
    assert (finding.verdict, finding.of_numbers) == ((None, False) if allowed else ("wrong", True)), finding.reason
    monkeypatch.setattr(clock, "SAMPLES", 10**6)  # of each round one is kept
    measured = compared(arena, arena.incumbent, coarse)
    outputs = measured.outputs
    assert not measured.only.failed and outputs
    supply = replace(arena.referee.supply, setting=arena.referee.setting, _reference=None)
    request.addfinalizer(supply.close)
    assert replace(arena.referee, supply=supply).check_timed(outputs).verdict == finding.verdict


DOUBLE = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8, dtype=torch.float64).eval()

def inputs(seed):
    return {"input": torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))}
"""


@pytest.mark.parametrize(("dtype", "allowed"), [("float64", False), ("float32", True), ("bfloat16", False)])
def test_it_is_no_excuse_where_the_model_is_not_of_float32(
    dtype: str, allowed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tf32, "allowed", lambda: tf32._PRODUCTS)
    tree = write_files(tmp_path / "tree", {"bench.py": DOUBLE.replace("float64", dtype)})
    reference = Reference(str(tree), "bench.py")
    with torch.enable_grad():  # it turns gradients off
        reference.op_build()
        reference.op_precision("float64")
    assert reference.op_tf32() == {"allowed": allowed}


def test_shaken_the_original_answers_with_all_that_goes_into_it_moved_by_rounding(tmp_path: Path) -> None:
    tree = write_files(tmp_path / "tree", {"bench.py": DOUBLE.replace("float64", "float32")})
    reference = Reference(str(tree), "bench.py")
    saved = {name: str(tmp_path / name) for name in ("state", "input", "plain", "wide", "shaken")}
    with torch.enable_grad():
        reference.op_build()
        reference.op_save_state(saved["state"])
        reference.op_draw({saved["input"]: 1})
        for name, how in (("plain", {}), ("wide", {"name": "float64"}), ("shaken", {"how": "shaken"})):
            if how:
                reference.op_precision(**how)
            reference.op_load_state(saved["state"])
            reference.op_stage(saved["input"])
            reference.op_call(1)
            reference.op_save(saved[name])
    plain, wide, shaken = (tensors.read(Path(saved[name])).leaves[0] for name in ("plain", "wide", "shaken"))
    errors = [accuracy.leaf_error(each, wide, plain).row for each in (plain, shaken)]
    assert 0 < errors[0] < errors[1] < 1e-6
