"""On a real GPU: a candidate that faults there, and one that never ends, are broken; what comes after is judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging.referee import Referee
from tools.judging.worker import Build

pytestmark = pytest.mark.gpu

BENCH = """
import torch
from model import Net

def build():
    torch.manual_seed(0)
    return Net().cuda()

def inputs(seed):
    return (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)).cuda(),)
"""
MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x)
"""
FAULT = """
def fault(self, x):
    return self.layer(x) + x[torch.full((1,), 1 << 20, device=x.device)]  # far beyond its end

Net.forward = fault
"""
HANG = """
import triton
import triton.language as tl

@triton.jit
def never_ends(out):
    while tl.load(out, volatile=True) == 0:
        pass

def hang(self, x):
    never_ends[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))
    return self.layer(x)

Net.forward = hang
"""


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    files = {"bench.py": BENCH, "model.py": MODEL}
    with opened(tmp_path_factory.mktemp("gpu"), files) as found:
        found.setting = replace(found.setting, check_timeout_s=60.0)
        yield found


@pytest.mark.parametrize(("name", "code"), [("fault", FAULT), ("hang", HANG)])
def test_the_candidate_is_broken_and_the_next_is_judged(name: str, code: str, referee: Referee, tmp_path: Path) -> None:
    tree = write_files(tmp_path / name, {"bench.py": BENCH, "model.py": MODEL + code})
    assert referee.check(Build(name, tree)).finding.verdict == "broken"
    assert referee.health.look() is None
    assert referee.check(referee.pristine).finding.verdict is None
