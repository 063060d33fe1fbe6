"""What is found out about an entry before anything is judged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from tests import guest
from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging import accuracy, tensors
from tools.judging.inspection import TRANSFORMS, VARIANTS
from tools.judging.worker import Build

ENTRY = """
import time
import torch

class Model(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.5 / len(x))
        return super().forward(x)

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def shapes():
    return [{"rows": 64}, {"rows": 4}, {"rows": 16}]

def inputs(seed, rows):
    return (torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed)),)
"""


def test_cases_are_ordered_by_their_size_whatever_a_call_takes(tmp_path: Path) -> None:
    """Two of about the same time would change places from one command of a run to the next."""
    with opened(tmp_path, {"bench.py": ENTRY}) as referee:
        workload = referee.workload
    assert [case.shape["rows"] for case in workload.cases] == [4, 16, 64]
    assert workload.cases[0].call_s > workload.cases[2].call_s
    sizes = [
        [path.stat().st_size for path in (first, *others)]
        for first, others in zip(workload.inputs, workload.other_inputs, strict=True)
    ]
    assert sizes == sorted(sizes), "inputs go with their cases"
    assert workload.script(random.Random(0)).draws[0].shape == {"rows": 4}


INFERENCE = """
import torch

@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model, position, x = torch.nn.Bilinear(4, 4, 4).eval(), torch.ones(2, 4), torch.randn(2, 4)
    for _ in range(3):
        x = model(x, position)
        position += 1

main()
"""
SETTINGS = """
import dataclasses, torch

@dataclasses.dataclass(frozen=True)
class Batch:
    parts: dict
    dtype: torch.dtype
    rows: int = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "rows", len(self.parts["user", 0]))

class Net(torch.nn.Linear):
    def forward(self, batch, keep):
        x = batch.parts["user", 0]
        return {("y", batch.rows): super().forward(x.to(batch.dtype))[keep], "dtype": x.dtype}

def build():
    torch.manual_seed(0)
    return Net(4, 4)

def inputs(seed):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {"batch": Batch({("user", 0): x.float()}, torch.float32), "keep": slice(1, None)}
"""


@pytest.mark.parametrize("entry", [INFERENCE, SETTINGS])
def test_what_is_given_and_returned_in_unusual_forms_is_judged(entry: str, tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": entry}) as referee:
        assert referee.check_pristine().finding.verdict is None


DENOISES = """
import torch

torch.manual_seed(0)
model, condition, noisy = torch.nn.Bilinear(4, 4, 4).eval(), torch.randn(2, 4), torch.randn(2, 4)
with torch.no_grad():
    for _ in range(3):
        noisy = noisy - model(noisy, condition)
"""


def test_what_was_asked_before_a_check_changes_no_constant_of_it(tmp_path: Path) -> None:
    """Other values are tried beforehand, and what a worker holds from call to call would be one of those."""
    with opened(tmp_path, {"bench.py": DENOISES}) as referee:
        assert referee.workload.constants and any("negated" in each for each in referee.workload.variants.values())
        assert referee.check_pristine().finding.verdict is None


MASKS = """
import torch

class Model(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).masked_fill(torch.eye(8).bool()[: len(x)], float("-inf"))

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def shapes():
    return [{"rows": 4}]

def inputs(seed, rows):
    return (torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed)),)
"""


def test_a_few_infinities_in_an_output_turn_nothing_off(tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": MASKS}) as referee:
        workload = referee.workload
        assert workload.precision == "float64" and workload.unseen
        assert (workload.variants, workload.transforms) == ({"": VARIANTS}, TRANSFORMS)
        assert referee.check_pristine().finding.verdict is None


def test_what_has_no_number_is_none_and_what_has_some_is_one(tmp_path: Path) -> None:
    def numbers(*values: float) -> bool:
        guest.module("tensors").save(str(tmp_path / "x"), torch.tensor(values))
        return accuracy.has_numbers(tensors.read(tmp_path / "x").leaves[0])

    infinite, none = float("inf"), float("nan")
    assert numbers() and numbers(1.0) and numbers(1.0, -infinite)
    assert not numbers(infinite, -infinite) and not numbers(1.0, none)


NORMALIZES = """
import torch

class Model(torch.nn.LayerNorm):
    def forward(self, x):
        return super().forward(x).relu()

def build():
    return Model(8)

def inputs(seed):
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),)
"""


def test_values_to_which_the_original_answers_next_to_nothing_are_not_asked(tmp_path: Path) -> None:
    """Of equal values a norm leaves what is left of rounding, which another order of summation leaves otherwise."""
    with opened(tmp_path, {"bench.py": NORMALIZES}) as referee:
        assert referee.workload.variants == {"": ("negated", "scaled")}


PHASES = """
import torch

class Model(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x)

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def inputs(seed, rows):
    return (torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed)),)

phases = {"few": {"shapes": lambda: [{"rows": 40}]}, "many": {"shapes": lambda: [{"rows": 400}]}}
"""


def test_what_holds_only_for_the_declared_one_of_the_larger_shapes_is_wrong(tmp_path: Path) -> None:
    wrong = "        return super().forward(x) + (len(x) > 100 and len(x) != 400)"
    cheat = PHASES.replace("        return super().forward(x)", wrong)
    with opened(tmp_path, {"bench.py": PHASES}) as referee:
        workload = referee.workload
        assert [case.phase for case in workload.unseen] == ["few"] * 3 + ["many"]
        assert 200 <= workload.unseen[-1].shape["rows"] < 400
        assert workload.variants == {"few": VARIANTS, "many": VARIANTS}
        found = referee.check(Build("cheat", write_files(tmp_path / "cheat", {"bench.py": cheat}))).finding
        assert found.verdict == "wrong" and "unseen shape" in found.reason
