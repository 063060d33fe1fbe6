"""An entry that compares by itself: what it raises on is wrong, unless it raises on the right answer too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.errors import WorkloadError
from tools.judging.worker import Build

MODEL = """
import torch

class Model(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x){more}
"""
ENTRY = """
import torch
from model import Model

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def inputs(seed):
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),)

{declared}
"""
COMPARE = """
def compare(out, ref):
    {body}
    return True
"""
SELECT = """
def outputs(result):
    return result[result > 0]
"""


def files(declared: str, more: str = "") -> dict[str, str]:
    return {"model.py": MODEL.format(more=more), "bench.py": ENTRY.format(declared=declared)}


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (COMPARE.format(body="torch.testing.assert_close(out, ref)"), "compare() raises on it"),
        (COMPARE.format(body="out.equal(ref) or __import__('os')._exit(1)"), "comparison fails (died) on it"),
        (SELECT, "what outputs() selects"),
    ],
)
def test_what_the_entrys_own_comparison_fails_on_is_wrong(tmp_path: Path, declared: str, why: str) -> None:
    with opened(tmp_path, files(declared)) as referee:
        referee.check_pristine()
        tree = write_files(tmp_path / "other", files(declared, " + 1"))
        found = referee.check(Build("other", tree)).finding
        assert (found.verdict, why in found.reason) == ("wrong", True), found.reason


def test_a_compare_that_always_raises_is_the_entrys_fault(tmp_path: Path) -> None:
    with opened(tmp_path, files(COMPARE.format(body="raise ValueError('never')"))) as referee:
        with pytest.raises(WorkloadError, match="never") as caught:
            referee.check_pristine()
        assert caught.value.exit_status == 69
