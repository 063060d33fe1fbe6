"""An entry that compares by itself: what it raises on is wrong, unless it raises on the right answer too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox.local import LocalSandbox
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

def compare(out, ref):
    {body}
    return True
"""


def target(folder: Path, body: str, more: str = "") -> Path:
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.format(more=more))
    (folder / "bench.py").write_text(ENTRY.format(body=body))
    return folder


def referee(folder: Path, body: str) -> Referee:
    (folder / "scratch").mkdir()
    sandbox = LocalSandbox(sys.executable, folder / "sandbox", owned=(folder,))
    pristine = target(folder / "pristine", body)
    return open_referee(pristine, "bench.py", python=sys.executable, sandbox=sandbox, scratch=folder / "scratch")


def test_what_compare_raises_on_is_wrong(tmp_path: Path) -> None:
    body = "torch.testing.assert_close(out, ref)"
    judge = referee(tmp_path, body)
    try:
        judge.check_pristine()
        found = judge.check(Build("other", target(tmp_path / "other", body, " + 1"))).finding
        assert found.verdict == "wrong" and "compare() raises on it" in found.reason
    finally:
        judge.close()


def test_a_compare_that_always_raises_is_the_entrys_fault(tmp_path: Path) -> None:
    judge = referee(tmp_path, "raise ValueError('never')")
    try:
        with pytest.raises(WorkloadError, match="never") as caught:
            judge.check_pristine()
        assert caught.value.exit_status == 69
    finally:
        judge.close()
