"""A copy goes when neither side is written to and nobody else gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, same_results
from tools.rewrite import CannotRewrite, copies

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


def dropped(before: Target) -> Target:
    sites = copies.find(before.observe())
    if not sites:
        raise CannotRewrite("nothing was found")
    return before.with_files(copies.rewrite(before.tree, sites[0]))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("        old = x.clone()\n        return self.layer(x) + old", "old = x\n"),
        ("        return self.layer(torch.clone(x * 2))", "self.layer(x * 2)"),
        ("        return self.layer((x + 1).contiguous())", "self.layer((x + 1))"),
    ],
)
def test_a_needless_copy_goes(tmp_path: Path, body: str, wanted: str) -> None:
    before = target(tmp_path, body)
    after = dropped(before)
    assert wanted in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize(
    "body",
    [
        "        old = x.clone()\n        old += 1\n        return self.layer(x) + old",
        "        old = x.clone()\n        x[:, 0] = 0\n        return self.layer(x) + old",
        "        return x.clone()",
        "        old = x.clone()\n        return old",
        "        old = x.clone()\n        self.kept = old\n        return self.layer(x)",
        "        old = x.clone()\n        outputs = (self.layer(old),) + (old,)\n        return outputs",
        "        old = x.clone()\n        if x.dim(): return self.layer(old), old\n        return x",
        "        old = x.clone()\n        return nn.functional.dropout(old, 0.1, False)",
        "        old = x.clone()\n        x = torch.relu(x)\n        return old.transpose(0, 1)",
        "        old = x.clone()\n        part = old[:1]\n        part += 1\n        return self.layer(x) + old",
        "        old = x.clone()\n        x = nn.functional.relu(x, inplace=True)\n        return self.layer(x) + old",
        "        return self.layer(x.transpose(0, 1).contiguous().view(-1, 16))",
        "        return self.layer(x.double().float())",
    ],
)
def test_a_copy_that_matters_stays(tmp_path: Path, body: str) -> None:
    with pytest.raises(CannotRewrite):
        dropped(target(tmp_path, body))
