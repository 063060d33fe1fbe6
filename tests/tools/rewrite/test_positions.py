"""Positions that nobody uses are not multiplied, where the result of a linear layer is used for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.rewrite import CannotRewrite, positions

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(16, 16), nn.Linear(16, 64)

    def forward(self, x):
        n = 2
        h = torch.tanh(self.body(x))
{body}
"""


def target(tmp_path: Path, *lines: str) -> Target:
    body = "\n".join(f"        {line}" for line in lines)
    return Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body), inputs="(torch.randn(2, 12, 16),)")


REWRITTEN = [
    (("return self.head(h)[:, -1]",), "self.head(h[:, -1])"),
    (("return self.head(h)[:, -n:, :].sum(1)",), "self.head(h[:, -n:, :]).sum(1)"),
    (("logits = self.head(h)", "return logits[:, -1, :]"), "logits = self.head(h[:, -1, :])"),
    (
        ("logits = self.head(h)", "h = h + 1", "logits = logits[:, -1]", "return logits.softmax(-1)"),
        "logits = self.head(h[:, -1])",
    ),
]


@pytest.mark.parametrize(("lines", "expected"), REWRITTEN, ids=[expected for _, expected in REWRITTEN])
def test_positions_are_taken_before_the_layer(tmp_path: Path, lines: tuple[str, ...], expected: str) -> None:
    before = target(tmp_path, *lines)
    site = only(positions.find(before.observe()))
    assert (site.module_class, site.detail["rank"]) == ("Model", 3) and site.detail["kept"] <= 0.2
    after = before.with_files(positions.rewrite(before.tree, site))
    assert expected in after.text()
    assert same_results(before, after)
    assert positions.find(after.observe()) == []


NOT_FOUND = [
    ("logits = self.head(h)", "return logits[:, -1], logits"),  # handed out whole: an AST alone says so
    ("logits = self.head(h)", "return logits[:, -1] + logits.mean(1)"),
    ("return self.head(h)[:, -1, :8]",),
    ("return self.head(h)[:, 1:]",),
    ("return self.head(h)[:, torch.tensor([3])]",),
    ("logits = self.head(h)", "m = int(logits.shape[1]) - 1", "return logits[:, m:]"),
]


@pytest.mark.parametrize("lines", NOT_FOUND, ids=[" ".join(lines) for lines in NOT_FOUND])
def test_what_is_used_otherwise_stays_as_it_is(tmp_path: Path, lines: tuple[str, ...]) -> None:
    before = target(tmp_path, *lines)
    for site in positions.find(before.observe()):
        with pytest.raises(CannotRewrite):
            positions.rewrite(before.tree, site)
