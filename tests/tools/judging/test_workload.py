"""What is found out about an entry before anything is judged."""

from __future__ import annotations

import random
from pathlib import Path

from tests.tools.judging.opened import opened

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
    sizes = [[path.stat().st_size for path in (first, *others)]
             for first, others in zip(workload.inputs, workload.other_inputs, strict=True)]  # fmt: skip
    assert sizes == sorted(sizes), "inputs go with their cases"
    assert workload.script(random.Random(0)).draws[0].shape == {"rows": 4}


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
        assert referee.workload.constants and "negated" in referee.workload.variants
        assert referee.check_pristine().finding.verdict is None
