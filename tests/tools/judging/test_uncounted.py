"""Writes that torch does not count: what is kept until a version changes is wrong, what compares contents is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging.referee import Referee
from tools.judging.worker import Build

SCRIPT = """
import numpy as np
import torch
from model import Matcher

torch.manual_seed(0)
model, rng = Matcher().eval(), np.random.default_rng(0)
frames, prompts = np.zeros((6, 8), np.float32), np.zeros((4, 8), np.float32)
frame, prompt = torch.from_numpy(frames), torch.from_numpy(prompts)
with torch.no_grad():
    for step in range(12):
        frames[:] = rng.standard_normal(frames.shape, np.float32)
        if step % 6 == 0:
            prompts[:] = rng.standard_normal(prompts.shape, np.float32)
        model(frame, prompt)
"""
MODEL = """
import torch
from torch import nn

class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.prompt_tower, self.frame_tower = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("gains", torch.rand(8))

    def kept(self, name, facts, make):
        if torch.is_grad_enabled():
            return make()
        held = self.__dict__.setdefault("held", {})
        if name not in held or held[name][0] != facts:
            held[name] = facts, make()
        return held[name][1]

    def forward(self, frame, prompt):
        weight, gains = self.prompt_tower.weight, self.gains
        return self.frame_tower(frame) @ self.prompt_tower(prompt).t() * gains.sum()
"""
KEPT = {
    "an input": ("self.prompt_tower(prompt)", "self.kept('p', {facts}, lambda: self.prompt_tower(prompt))", "prompt"),
    "a weight": (
        "self.prompt_tower(prompt)",
        "(prompt @ self.kept('w', {facts}, lambda: weight.t().clone()) + self.prompt_tower.bias)",
        "weight",
    ),
    "a buffer": ("gains.sum()", "self.kept('g', {facts}, lambda: gains.sum())", "gains"),
}
BY_VERSION = "(id({it}), {it}.data_ptr(), {it}._version, {it}.shape)"
BY_CONTENTS = "({it}.tolist(), weight.tolist(), self.prompt_tower.bias.tolist())"


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    with opened(tmp_path_factory.mktemp("uncounted"), {"bench.py": SCRIPT, "model.py": MODEL}) as found:
        yield found


def candidate(referee: Referee, folder: Path, what: str, facts: str) -> Build:
    old, new, it = KEPT[what]
    assert MODEL.count(old) == 1
    model = MODEL.replace(old, new.format(facts=facts.format(it=it)))
    return Build(f"{what} {facts}", write_files(folder / "candidate", {"bench.py": SCRIPT, "model.py": model}))


@pytest.mark.parametrize("what", KEPT)
def test_what_is_kept_until_a_version_changes_is_wrong(referee: Referee, tmp_path: Path, what: str) -> None:
    found = referee.check(candidate(referee, tmp_path, what, BY_VERSION)).finding
    assert found.verdict == "wrong", found


@pytest.mark.parametrize("what", KEPT)
def test_what_is_kept_until_the_contents_change_is_right(referee: Referee, tmp_path: Path, what: str) -> None:
    assert not referee.workload.constants, "NumPy writes to both"
    found = referee.check(candidate(referee, tmp_path, what, BY_CONTENTS)).finding
    assert found.verdict is None, found
