"""Where a model answers in integers, the values that it chooses them by are compared, where they can be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging.worker import Build

ENTRY = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 40)

    def scores(self, tokens):
        return self.head(self.table(tokens).cumsum(1)[:, -1].tanh())

    def forward(self, tokens):
        for _ in range(3):
            scores = self.scores(tokens)
            tokens = torch.cat([tokens, scores.argmax(-1, keepdim=True)], 1)
        return tokens

def build():
    torch.manual_seed(0)
    return Model().eval()

def inputs(seed):
    return (torch.randint(0, 40, (4, 6), generator=torch.Generator().manual_seed(seed)),)
"""
SCORES = "scores = self.scores(tokens)"
CHOICE = "scores.argmax(-1, keepdim=True)"


@pytest.mark.parametrize(
    ("old", "new", "is_right"),
    [
        (SCORES, f"{SCORES}; scores = scores - 1e-3 * scores.clamp(max=0)", False),
        pytest.param(
            SCORES,
            f"{SCORES}; scores = torch.where(scores < 0.2, scores * 1.001, scores)",
            False,
            marks=pytest.mark.slow,
        ),
        (CHOICE, "scores.softmax(-1).argmax(-1, keepdim=True)", True),
        (CHOICE, "torch.from_numpy(scores.detach().numpy().argmax(-1))[:, None]", True),
        pytest.param(CHOICE, "scores.topk(1).indices", True, marks=pytest.mark.slow),
        pytest.param("cumsum(1)[:, -1]", "sum(1)", True, marks=pytest.mark.slow),
    ],
)
def test_values_behind_integers_are_compared_where_they_can_be_had(
    tmp_path: Path, old: str, new: str, is_right: bool
) -> None:
    assert ENTRY.count(old) == 1
    with opened(tmp_path, {"bench.py": ENTRY}) as referee:
        changed = write_files(tmp_path / "changed", {"bench.py": ENTRY.replace(old, new)})
        assert referee.workload.has_choices
        found = referee.check(Build("changed", changed)).finding
    assert found.verdict == (None if is_right else "wrong"), found
    assert is_right or "value behind integers" in found.reason
