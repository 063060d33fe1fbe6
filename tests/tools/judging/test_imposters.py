"""A truth in a wider precision is one only where it is the same function: what is wrong must fail against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging import imposters
from tools.judging.correctness import Rules
from tools.judging.worker import Build

ENTRY = """
import torch

class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.register_buffer("turns", torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, x):
        y = super().forward(x)
        return {result}

def build():
    torch.manual_seed(0)
    return Model().eval()

def inputs(seed):
    return (torch.randn(16, 8, generator=torch.Generator().manual_seed(seed)),)
"""
NOISE = "(torch.manual_seed(0), y * torch.rand(len(x), 1, dtype=x.dtype))[1]"
TURNED = "torch.view_as_real(torch.view_as_complex(y.reshape(len(x), 4, 2)) * self.turns).flatten(1)"


@pytest.mark.parametrize("result, precision", [(NOISE, "float32"), (TURNED, "float64")])
def test_zeros_do_not_pass_where_the_wider_model_may_be_another_function(
    result: str, precision: str, tmp_path: Path
) -> None:
    zeros = write_files(tmp_path / "zeros", {"bench.py": ENTRY.format(result=f"torch.zeros_like({result})")})
    with opened(tmp_path, {"bench.py": ENTRY.format(result=result)}) as referee:
        assert referee.workload.precision == precision
        assert referee.check_pristine().finding.verdict is None
        assert referee.check(Build("zeros", zeros)).finding.verdict == "wrong"


def test_rounding_is_the_same_function_and_what_is_lost_in_many_rows_is_none(saved: Any) -> None:
    truth = torch.randn(64, 32, dtype=torch.float64)
    one_lost, many_lost = truth.bfloat16(), truth.bfloat16()
    one_lost[5], many_lost[::8] = 1, 1
    for right, same in ((truth.bfloat16(), True), (one_lost, True), (many_lost, False), (truth * 1.2, False)):
        assert imposters.is_same_function([saved(right)], [saved(truth)]) is same
    assert not imposters.is_same_function([saved(truth)], [saved(truth[1:])]), "another shape"
    assert not imposters.is_same_function([saved(truth)], [saved(torch.zeros_like(truth))])
    assert imposters.is_same_function([saved(torch.ones(0, 3))], [saved(torch.ones(0, 3))])


def test_what_would_pass_for_the_right_answer_is_named(saved: Any, tmp_path: Path) -> None:
    rights = [saved(torch.randn(8, 4)) for _ in range(3)]
    assert imposters.passing(rights, rights[0], Rules(), tmp_path) == ""
    other_truth = saved(torch.from_numpy(rights[0].leaves[0].as_float(0, 32).reshape(8, 4) * np.pi))
    assert imposters.passing(rights, other_truth, Rules(), tmp_path)
    constant = [saved(torch.ones(8, 4))] * 3
    assert imposters.passing(constant, constant[0], Rules(), tmp_path) == "the output for another seed"


LARGE = """
import os
import torch

class Model(torch.nn.Linear):
    def forward(self, x):
        if x.dtype == torch.float64 and len(x) > 8:
            {fails}
        return super().forward(x)

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def shapes():
    return [{{"rows": 4}}, {{"rows": 16}}]

def inputs(seed, rows):
    return (torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed)),)
"""


@pytest.mark.parametrize("fails", ["raise RuntimeError('not for double')", "os._exit(1)"])
def test_a_precision_in_which_a_larger_case_fails_is_not_the_truths(fails: str, tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": LARGE.format(fails=fails)}) as referee:
        assert referee.workload.precision == "float32"
        assert referee.check_pristine().finding.verdict is None
