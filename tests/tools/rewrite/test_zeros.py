"""Zeros go where all of them are written to first, and stay wherever a part of them may be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, same_results
from tools.rewrite import CannotRewrite, zeros

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
{body}
"""


def target(tmp_path: Path, body: str) -> Target:
    return Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body.strip("\n")))


def filled(before: Target) -> Target:
    sites = zeros.find(before.observe())
    if not sites:
        raise CannotRewrite("nothing was found")
    return before.with_files(zeros.rewrite(before.tree, sites[0]))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("        y = torch.zeros(x.shape, dtype=x.dtype)\n        y.copy_(x)", "torch.empty(x.shape, dtype=x.dtype)"),
        ("        y = torch.zeros_like(x)\n        z = x * 2\n        y[:] = z", "torch.empty_like(x)"),
        ("        y = x.new_zeros(x.shape)\n        y[...] = self.layer(x)", "x.new_empty(x.shape)"),
        ("        if x.dim():\n            y = torch.zeros_like(x)\n            y[:, :] = x\n", "torch.empty_like(x)"),
    ],
)
def test_zeros_that_nothing_reads_go(tmp_path: Path, body: str, wanted: str) -> None:
    before = target(tmp_path, body + "\n        return self.layer(y)")
    after = filled(before)
    assert wanted in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize(
    "body",
    [
        "        y = torch.zeros_like(x)\n        y[:, 1:] = x[:, 1:]",
        "        y = torch.zeros_like(x)\n        y[:, :5] = x",  # everything, for this shape
        "        y = torch.zeros_like(x)\n        y += x",
        "        y = torch.zeros_like(x)\n        y[:] = x + y",
        "        y = torch.zeros_like(x)\n        z = y.view(-1)\n        z[:] = x.view(-1)",
        "        y = torch.zeros_like(x)\n        if x.dim():\n            y[:] = x",
        "        y = torch.zeros_like(x)",
        "        y = torch.zeros_like(x)\n        y[x > 0] = 1.0",
        "        y = torch.ones_like(x)\n        y[:] = x",
        "        for i in range(2):\n            y = torch.zeros_like(x)\n            if i:\n                y[:] = x",
    ],
)
def test_zeros_that_something_may_read_stay(tmp_path: Path, body: str) -> None:
    with pytest.raises(CannotRewrite):
        filled(target(tmp_path, body + "\n        return self.layer(y)"))
