"""A tolerance that the entry declares is from what the original answers, and must tell right from wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tools.judging.opened import opened
from tools.errors import WorkloadError
from tools.judging import correctness, tensors
from tools.judging.correctness import Compared, Rules

RULES = Rules(tolerance={"rtol": 1e-3, "atol": 1e-5})
ENTRY = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8)

def inputs(seed):
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),)

def tolerance():
    return {"atol": 100.0}
"""


def test_the_original_is_within_its_own_tolerance_whatever_its_precision(path: Any) -> None:
    truth = torch.rand(16, 16, dtype=torch.float64) + 1

    def judged(candidate: torch.Tensor, original: torch.Tensor, wider: torch.Tensor = truth) -> Any:
        call = Compared("first call", "", "", path(candidate), path(original), path(wider))
        return correctness.judge_calls([call], RULES, None).verdict

    original = truth.bfloat16()
    assert judged(original, original) is None and judged(original, original, truth[1:]) is None
    assert judged(truth.float() * 1.0005, truth.float()) is None
    assert judged(truth.float() * 1.01, truth.float()) == "wrong"
    assert judged(truth.float(), truth.float() * 1.01) == "wrong", "nearer to the truth, but not the same"


def test_a_wrong_answer_passes_only_within_the_tolerance(path: Any) -> None:
    value = torch.rand(4, 4) + 1
    right, near, far = (tensors.read(path(x)) for x in (value, value * 1.0005, value * 1.01))
    assert correctness.passes_for(near, right, right, RULES) and not correctness.passes_for(near, right, right, Rules())
    assert not correctness.passes_for(far, right, right, RULES)


def test_a_tolerance_under_which_zeros_pass_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="zeros would pass") as caught, opened(tmp_path, {"bench.py": ENTRY}):
        pass
    assert caught.value.exit_status == 65


def test_what_has_another_shape_in_a_wider_precision_is_compared_with_the_original(path: Any) -> None:
    value = torch.rand(4, 4) + 1

    def judged(candidate: torch.Tensor) -> Any:
        call = Compared("first call", "", "", path(candidate), path(value), path(torch.ones(3, 4).double()))
        return correctness.judge_calls([call], Rules(), None).verdict

    assert judged(value) is None and judged(value * 1.001) == "wrong"
