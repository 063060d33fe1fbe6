"""What an entry declares about results: its own comparison, its selection of outputs, its tolerance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.files import write_files
from tests.tools.judging.opened import linear, opened
from tools.errors import WorkloadError
from tools.judging import correctness, imposters, tensors
from tools.judging.correctness import Compared, Rules
from tools.judging.worker import Build

COMPARE = """
def compare(out, ref):
    {body}
    return True
"""
SELECT = """
def outputs(result):
    return result[result > 0]
"""


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (COMPARE.format(body="torch.testing.assert_close(out, ref)"), "compare() raises on it"),
        (COMPARE.format(body="out.equal(ref) or __import__('os')._exit(1)"), "comparison fails (died) on it"),
        (SELECT, "what outputs() selects"),
    ],
)
def test_what_the_entrys_own_comparison_fails_on_is_wrong(tmp_path: Path, declared: str, why: str) -> None:
    """The entry is the pristine one: it calls the model of the tree that is judged."""
    entry = linear(more=declared).replace("import torch\n", "import torch\nfrom offset import OFFSET\n", 1)
    files = {"bench.py": entry.replace("super().forward(x)", "super().forward(x) + OFFSET"), "offset.py": "OFFSET = 0"}
    with opened(tmp_path, files) as referee:
        referee.check_pristine()
        tree = write_files(tmp_path / "other", {**files, "offset.py": "OFFSET = 1"})
        found = referee.check(Build("other", tree)).finding
        assert (found.verdict, why in found.reason) == ("wrong", True), found.reason


@pytest.mark.parametrize(
    ("declared", "words", "status"),
    [
        (COMPARE.format(body="raise ValueError('never')"), "never", 69),
        ("\ndef tolerance():\n    return {'atol': 100.0}\n", "zeros would pass", 65),
    ],
)
def test_a_rule_that_refuses_the_original_is_an_error(tmp_path: Path, declared: str, words: str, status: int) -> None:
    with (
        pytest.raises(WorkloadError, match=words) as caught,
        opened(tmp_path, {"bench.py": linear(more=declared)}) as referee,
    ):
        referee.check_pristine()
    assert caught.value.exit_status == status


RULES = Rules(tolerance={"rtol": 1e-3, "atol": 1e-5})


def test_a_tolerance_is_from_what_the_original_answers_whatever_its_precision(path: Any) -> None:
    truth = torch.rand(16, 16, dtype=torch.float64) + 1

    def judged(candidate: torch.Tensor, original: torch.Tensor, wider: torch.Tensor = truth, rules: Any = RULES) -> Any:
        call = Compared("first call", "", "", path(candidate), path(original), path(wider))
        return correctness.judge_calls([call], rules, None).verdict

    original = truth.bfloat16()
    assert judged(original, original) is None and judged(original, original, truth[1:]) is None
    assert judged(truth.float() * 1.0005, truth.float()) is None
    assert judged(truth.float() * 1.01, truth.float()) == "wrong"
    assert judged(truth.float(), truth.float() * 1.01) == "wrong", "nearer to the truth, but not the same"
    # without one, what has another shape in a wider precision is compared with the original as well
    for factor, verdict in ((1.0, None), (1.001, "wrong")):
        assert judged(truth.float() * factor, truth.float(), truth[1:], Rules()) == verdict


@pytest.mark.parametrize(
    ("factor", "strictly", "roughly"), [(1.0, None, None), (1.01, "wrong", None), (1.2, "wrong", "wrong")]
)
def test_what_rounding_moves_is_compared_roughly_where_there_is_no_truth(
    path: Any, factor: float, strictly: Any, roughly: Any
) -> None:
    value = torch.rand(16, 16) + 1
    call = Compared("huge values", "", "", *map(path, (value * factor, value, value)))
    assert correctness.judge_calls([call], Rules(), None).verdict == strictly
    rough = replace(call, is_rough=True)
    assert correctness.judge_calls([rough], Rules(), None).verdict == roughly
    assert correctness.judge_calls([replace(rough, truth=path(value.double()))], Rules(), None).verdict == strictly


def test_a_wrong_answer_passes_only_within_the_tolerance(path: Any) -> None:
    value = torch.rand(4, 4) + 1
    right, near, far = (tensors.read(path(x)) for x in (value, value * 1.0005, value * 1.01))
    assert imposters.passes_for(near, right, right, RULES) and not imposters.passes_for(near, right, right, Rules())
    assert not imposters.passes_for(far, right, right, RULES)
