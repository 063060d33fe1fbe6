"""A truth in a wider precision is one only where it is the same function: what is wrong must fail against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.files import write_files
from tests.tools.judging.opened import linear, opened
from tools.judging import imposters
from tools.judging.correctness import Rules
from tools.judging.worker import Build

NOISE = "(torch.manual_seed(0), super().forward(x) * torch.rand(len(x), 1, dtype=x.dtype))[1]"
TURNED = "torch.view_as_real(torch.view_as_complex(super().forward(x).reshape(len(x), 4, 2)) * self.turns).flatten(1)"
TURNS = """
def build():
    torch.manual_seed(0)
    model = Model(8, 8)
    model.register_buffer("turns", torch.polar(torch.ones(4), torch.arange(4.0)))
    return model
"""


@pytest.mark.parametrize(("result", "precision"), [(NOISE, "float32"), (TURNED, "float64")])
def test_zeros_fail_where_the_wider_model_is_another_function(result: str, precision: str, tmp_path: Path) -> None:
    zeros = write_files(tmp_path / "zeros", {"bench.py": linear(f"torch.zeros_like({result})", TURNS)})
    with opened(tmp_path, {"bench.py": linear(result, TURNS)}) as referee:
        assert referee.workload.precision == precision
        assert referee.check_pristine().finding.verdict is None
        assert referee.check(Build("zeros", zeros)).finding.verdict == "wrong"


@pytest.mark.parametrize("fails", ["raise RuntimeError('not for double')", "os._exit(1)"])
def test_a_precision_in_which_a_larger_case_fails_is_not_the_truths(fails: str, tmp_path: Path) -> None:
    shapes = "\nimport os\n\ndef shapes():\n    return [{'rows': 4}, {'rows': 16}]\n"
    first = f"if x.dtype == torch.float64 and len(x) > 8: {fails}"
    with opened(tmp_path, {"bench.py": linear(first=first, more=shapes)}) as referee:
        assert referee.workload.precision == "float32"
        assert referee.check_pristine().finding.verdict is None


def test_rounding_is_the_same_function_and_what_is_lost_in_many_rows_is_none(saved: Any) -> None:
    def same(right: torch.Tensor, truth: torch.Tensor) -> bool:
        return imposters.is_same_function([saved(right)], [saved(truth)])

    truth = torch.randn(64, 32, dtype=torch.float64)
    one_lost, many_lost = truth.bfloat16(), truth.bfloat16()
    one_lost[5], many_lost[::8] = 1, 1
    assert same(truth.bfloat16(), truth) and same(one_lost, truth) and same(torch.ones(0, 3), torch.ones(0, 3))
    for right in (many_lost, truth * 1.2):
        assert not same(right, truth)
    for other in (truth[1:], torch.zeros_like(truth)):
        assert not same(truth, other)


def test_what_would_pass_for_the_right_answer_is_named(saved: Any, tmp_path: Path) -> None:
    rights = [saved(torch.randn(8, 4)) for _ in range(3)]
    assert imposters.passing(rights, rights[0], Rules()) == ""
    other_truth = saved(torch.from_numpy(rights[0].leaves[0].as_float(0, 32).reshape(8, 4) * np.pi))
    assert imposters.passing(rights, other_truth, Rules())
    constant = [saved(torch.ones(8, 4))] * 3
    assert imposters.passing(constant, constant[0], Rules()) == "the output for another seed"


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("zeros", [torch.zeros(8, 4), torch.ones(8, 4), torch.full((8, 4), 2.0)]),
        ("a shuffled batch", [torch.randn(1, 4).expand(8, 4).contiguous() for _ in range(3)]),
    ],
)
def test_each_imposter_is_named(name: str, answers: list[torch.Tensor], saved: Any) -> None:
    rights = [saved(each) for each in answers]
    assert imposters.passing(rights, rights[0], Rules()) == name


@pytest.mark.parametrize("shape", [(4, 512, 64), (3, 2, 5000), (900, 64), (1, 40, 40), (5000,)])
def test_of_a_large_answer_a_part_tells(shape: tuple[int, ...], saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rights = [saved(torch.randn(shape, dtype=torch.bfloat16)) for _ in range(3)]
    head = rights[0].leaves[0].head(1000)
    whole = rights[0].leaves[0].as_float(0, rights[0].leaves[0].elements).reshape(shape)
    part = whole if len(shape) == 1 else whole[tuple(slice(n) for n in head.shape)]
    assert np.array_equal(head.as_float(0, head.elements), part.ravel()) and head.shape[-1] == shape[-1]
    monkeypatch.setattr(imposters, "HEAD", 1000)
    assert imposters.passing(rights, rights[0], Rules()) == ""
    same = [rights[0], rights[0], rights[0]]
    assert imposters.passing(same, rights[0], Rules()) == "the output for another seed"
