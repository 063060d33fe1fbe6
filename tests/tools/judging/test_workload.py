"""What is found out about an entry before anything is judged."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from sandbox.local.provider import LocalSandbox
from tests.files import write_files
from tools.judging.open_referee import open_referee

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
    pristine = write_files(tmp_path / "pristine", {"bench.py": ENTRY})
    (tmp_path / "scratch").mkdir()
    sandbox = LocalSandbox(sys.executable, tmp_path / "sandbox", owned=(tmp_path,))
    referee = open_referee(pristine, "bench.py", python=sys.executable, sandbox=sandbox, scratch=tmp_path / "scratch")
    workload = referee.workload
    referee.close()
    assert [case.shape["rows"] for case in workload.cases] == [4, 16, 64]
    assert workload.cases[0].call_s > workload.cases[2].call_s
    sizes = [[path.stat().st_size for path in (first, *others)]
             for first, others in zip(workload.inputs, workload.other_inputs, strict=True)]  # fmt: skip
    assert sizes == sorted(sizes), "inputs go with their cases"
    assert workload.script(random.Random(0)).draws[0].shape == {"rows": 4}
