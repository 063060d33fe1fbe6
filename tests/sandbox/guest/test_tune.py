"""The tuner times our kernels on the sizes that a call gives them, and leaves everything as it was."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests import guest
from tests.observed import Target
from tools.tuned import Tuned

# a kernel file of ours whose launch takes as long as its options say
KERNEL = """
import time
import torch

CHOICES = tuple({"num_warps": n} for n in (1, 2, 4, 16))

class Tuned:
    def __init__(self, by_size, device):
        self.by_size, self.device = by_size, device

    def options(self, kernel, rows, columns, rule):
        return {**rule, **self.by_size.get((rows, columns), {})}

TUNED = Tuned({}, "")
kept = []

class Compiled:
    def __init__(self, spills):
        self.n_spills = spills

class Kernel:
    device_caches = {0: ({}, )}

_kernel = Kernel()

def rms(x):
    return _run(x, _kernel)

def _run(x, kernel):
    launch = TUNED.options(kernel, x.shape[0], x.shape[1], {"num_warps": 4})
    warps = launch["num_warps"]
    if warps == 16:
        raise RuntimeError("too many")
    kernel.device_caches[0][0].setdefault(warps, Compiled(3 if warps == 1 else 0))
    time.sleep({1: 0.0005, 2: 0.001, 4: 0.003}[warps])
    return x * 2
"""
MODEL = """
import torch
from torch import nn
from ratchet_ops.rms import rms

class Model(nn.Module):
    def forward(self, x):
        return rms(rms(x))
"""


@pytest.fixture
def target(tmp_path: Path) -> Target:
    target = Target.of_model(tmp_path / "tree", MODEL, inputs="(torch.randn(shape.get('rows', 5), 16),)")
    return target.with_files({"ratchet_ops/__init__.py": "", "ratchet_ops/rms.py": KERNEL})


def test_each_size_that_is_seen_is_timed_with_each_choice_and_the_kernels_are_left_as_they_were(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Any]()

    def device() -> str:
        seen.append(sys.modules["ratchet_ops.rms"])
        return "cpu"

    monkeypatch.setattr(guest.module("tune"), "_device", device)
    found: Tuned = target.tuned({"rows": 5}, {"rows": 7})
    kernels = seen[-1]
    assert type(kernels.TUNED) is kernels.Tuned and kernels.TUNED.by_size == {}
    assert kernels._run.__name__ == "_run"
    assert found.device == "cpu"
    assert [(each.file, each.run, each.rows, each.columns) for each in found.launches] == [
        ("ratchet_ops/rms.py", "_run", rows, 16) for rows in (5, 7)
    ]
    for each in found.launches:
        by_warps = {tried.choice["num_warps"]: tried for tried in each.tried}
        assert by_warps[16].us is None and each.best(0.1) == {"num_warps": 2}
        assert (by_warps[2].us or 0) > 900 and each.rule_us > 2900, "sleeping takes at least as long as asked for"
    assert max(tried.spills for tried in found.launches[0].tried) == 3


def test_what_is_not_ours_is_not_looked_at(tmp_path: Path) -> None:
    model = MODEL.replace("ratchet_ops.rms", "other_ops.rms")
    target = Target.of_model(tmp_path / "tree", model, inputs="(torch.randn(5, 16),)")
    target = target.with_files({"other_ops/__init__.py": "", "other_ops/rms.py": KERNEL})
    assert target.tuned().launches == []
