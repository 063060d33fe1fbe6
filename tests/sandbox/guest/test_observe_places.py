"""Functions of equal code in two files are two places, and calls of one module are told apart."""

from __future__ import annotations

from pathlib import Path

from tests.observed import Target

ATTENTION = """
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        m = torch.arange(16.0)
        q, k = self.q(x), self.k(x)
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ x + m
"""
BOTH = """
from torch import nn
from decoder import Decoder
from encoder import Encoder


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, x):
        return self.decoder(self.encoder(x))
"""


def test_copies_of_one_file_are_places_of_their_own(tmp_path: Path) -> None:
    target = Target.of_model(tmp_path / "tree", BOTH)
    Target.write(target.tree, {f"{name.lower()}.py": ATTENTION.format(name=name) for name in ("Encoder", "Decoder")})
    seen = target.observe()
    for table in (seen.attention, seen.constants):
        first = [(row.frames[0].file, row.frames[0].owner, row.count) for row in table]
        assert sorted(first) == [("decoder.py", "Decoder", 1), ("encoder.py", "Encoder", 1)]


CROSS = """
from torch import nn


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.listed = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])

    def forward(self, x, memory):
        return self.q(x) {what}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cross = Cross()

    def forward(self, x):
        memory = x + 1
        for _ in range(2):
            x = self.cross(x, memory)
        return x
"""


def groups(tree: Path, what: str) -> list[tuple[list[str], int]]:
    seen = Target.of_model(tree, CROSS.replace("{what}", what)).observe()
    return [(group.names, group.count) for group in seen.linear_groups]


def test_layers_that_are_given_the_same_in_several_calls_of_their_parent_are_one_group(tmp_path: Path) -> None:
    assert groups(tmp_path / "own", "+ self.k(memory) + self.v(memory)") == [(["k", "v"], 1)]
    assert groups(tmp_path / "listed", "+ sum(each(memory) for each in self.listed)") == [(["0", "1"], 1)]


def test_a_layer_that_one_call_asks_twice_is_in_no_group(tmp_path: Path) -> None:
    assert groups(tmp_path / "twice", "+ self.k(memory) + self.v(memory) + self.k(memory)") == []
