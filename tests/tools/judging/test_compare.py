"""An entry that compares by itself: what it raises on is wrong, unless it raises on the right answer too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox.local.provider import LocalSandbox
from tests.files import write_files
from tools.errors import WorkloadError
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee
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


def target(folder: Path, declared: str, more: str = "") -> Path:
    return write_files(folder, {"model.py": MODEL.format(more=more), "bench.py": ENTRY.format(declared=declared)})


def referee(folder: Path, declared: str) -> Referee:
    (folder / "scratch").mkdir()
    sandbox = LocalSandbox(sys.executable, folder / "sandbox", owned=(folder,))
    pristine = target(folder / "pristine", declared)
    return open_referee(pristine, "bench.py", python=sys.executable, sandbox=sandbox, scratch=folder / "scratch")


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (COMPARE.format(body="torch.testing.assert_close(out, ref)"), "compare() raises on it"),
        (COMPARE.format(body="out.equal(ref) or __import__('os')._exit(1)"), "comparison fails (died) on it"),
        (SELECT, "what outputs() selects"),
    ],
)
def test_what_the_entrys_own_comparison_fails_on_is_wrong(tmp_path: Path, declared: str, why: str) -> None:
    judge = referee(tmp_path, declared)
    try:
        judge.check_pristine()
        found = judge.check(Build("other", target(tmp_path / "other", declared, " + 1"))).finding
        assert (found.verdict, why in found.reason) == ("wrong", True), found.reason
    finally:
        judge.close()


def test_a_compare_that_always_raises_is_the_entrys_fault(tmp_path: Path) -> None:
    judge = referee(tmp_path, COMPARE.format(body="raise ValueError('never')"))
    try:
        with pytest.raises(WorkloadError, match="never") as caught:
            judge.check_pristine()
        assert caught.value.exit_status == 69
    finally:
        judge.close()
