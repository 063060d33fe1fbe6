"""A title stands for one place, wherever its line has moved: what was tried is known by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.proposers import PastAttempt, ProposalRequest
from agent.proposers.playbook import Playbook
from tests.agent.test_playbook import request
from tests.observed import Target

PART = """
import torch
from torch import nn


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return self.q(x) * self.k(x)
"""
MODEL = """
import one
import two
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = one.Part(), two.Part()

    def forward(self, x):
        return self.two(self.one(x) + 1)
"""


def tried(asked: ProposalRequest, title: str) -> ProposalRequest:
    past = PastAttempt(asked.step, title, "neutral", "no gain", "0")
    return replace(asked, attempts=(past,))


def titles(asked: ProposalRequest) -> list[str]:
    return [candidate.title for candidate in Playbook().propose(asked)[0]]


def test_classes_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    target = Target.of_model(tmp_path / "tree", MODEL)
    # the second one is not the same code at the same place
    target = target.with_files({"one.py": PART, "two.py": PART.replace("        return", "\n        return")})
    asked = request(target, "fuse_projections", target.observe())
    both = titles(asked)
    assert sorted(both) == [f"Run q and k of Part of {name}.py as one matrix multiplication" for name in ("one", "two")]
    assert titles(tried(asked, both[0])) == both[1:]


ZEROS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        y = torch.zeros(2, 5, 16)
        y.copy_(x)
        return y * 2
"""


def test_a_line_that_has_moved_is_the_same_one(tmp_path: Path) -> None:
    target = Target.of_model(tmp_path / "tree", ZEROS)
    (title,) = titles(request(target, "audit_compute", target.observe()))
    moved = target.with_files({"model.py": f"import math\n{ZEROS}"})
    asked = request(moved, "audit_compute", moved.observe())
    assert titles(asked) == [title] and titles(tried(asked, title)) == []
