"""A loop whose condition is a tensor of numbers is counted once; one that asks the data stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.observed import Target, only, same_results
from tools.rewrite import CannotRewrite, loops

MODEL = """
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.steps = nn.Linear(16, 16), 4

    def denoise(self, x, time):
        return torch.tanh(self.body(x)) * time

    def start(self):
        return 1.0

    def forward(self, x):
{body}
"""
START = ("dt = torch.tensor(-1.0 / self.steps, device=x.device)", "time = torch.tensor(1.0, device=x.device)")


def target(tmp_path: Path, *lines: str) -> Target:
    body = "\n".join(f"        {line}" for line in lines)
    model = MODEL.replace("{body}", body)
    return Target.of_model(tmp_path / "tree", model, model="Policy", inputs="(torch.randn(2, 12, 16),)")


COUNTED = {
    "as flow matching has it": (
        *START,
        "while time >= -dt / 2:",
        "    x = x + dt * self.denoise(x, time.expand(1))",
        "    time += dt",
        "return x",
    ),
    "read afterwards": (
        *START,
        "while time > 0.1:",
        "    time = time + dt",
        "    x = self.denoise(x, time)",
        "return x * time",
    ),
    "in place": (*START, "while time > 0:", "    x = self.denoise(x, time)", "    time.add_(dt)", "return x"),
    "with a flag": (
        *START,
        "done = torch.tensor(False)",
        "while not done:",
        "    x = self.denoise(x, time)",
        "    time = time + dt",
        "    done = time <= 0",
        "return x",
    ),
    "after another": (
        *START,
        "while time > 0.5:",
        "    time = time + dt",
        "left = torch.tensor(2)",
        "while left > 0:",
        "    x = x + time",
        "    left = left - 1",
        "return x",
    ),
    "several at once": (
        *START,
        "u, done = 0.25, torch.tensor(False)",
        "while not done:",
        "    time = time - u",
        "    done, u = time <= 0, 0.5",
        "return x * time",
    ),
    "of a size": (
        "left = torch.tensor(x.shape[1] // 4, device=x.device)",
        "while left > 0:",
        "    x = self.denoise(x, 0.5)",
        "    left = left - 1",
        "return x",
    ),
    "in a branch": (
        "if x.shape[0] > 1:",
        *(f"    {line}" for line in START),
        "    while time > 0:",
        "        x = self.denoise(x, time)",
        "        time += dt",
        "return x",
    ),
}


@pytest.mark.parametrize("name", list(COUNTED))
def test_what_shapes_and_numbers_decide_is_counted_once(tmp_path: Path, name: str) -> None:
    before = target(tmp_path, *COUNTED[name])
    after = before
    for _ in range(sum("while" in line for line in COUNTED[name])):
        after = after.with_files(loops.rewrite(after.tree, loops.find(after.observe())[0]))
    assert "while" not in after.text().partition("class Policy")[2]
    assert "in range(constant(_policy_forward_steps" in after.text()
    assert same_results(before, after)
    seen = after.observe()
    assert not seen.host_reads and not loops.find(seen)


LEFT_ALONE = {
    "depends on x": ("while x.abs().max() > 0.5:", "    x = x / 2", "return x"),
    "depends on a weight": (*START, "while time > self.body.bias[0]:", "    time = time + dt * 4", "return x * time"),
}


@pytest.mark.parametrize("name", list(LEFT_ALONE))
def test_what_data_decides_is_not_found(tmp_path: Path, name: str) -> None:
    seen = target(tmp_path, *LEFT_ALONE[name]).observe()
    assert seen.host_reads and not loops.find(seen)


REFUSED = [
    (
        "may be left",
        *START,
        "while time > 0:",
        "    time = time + dt",
        "    if x.shape[0] > 1:",
        "        continue",
        "    x = x + time",
        "return x",
    ),
    (
        "may be left",
        *START,
        "while time > 0:",
        "    time = time + dt",
        "    if x.shape[0] > 1:",
        "        break",
        "return x",
    ),
    ("no loop asks", *START, "x = x + 1 if time > 0 else x", "return x"),
    ("not understood", *START, "while time > 0:", "    if x.shape[0] > 1:", "        time = time + dt", "return x"),
    ("depends on time", "time = torch.tensor(self.start())", "while time > 0:", "    time = time - 0.25", "return x"),
    ("not made beside", *START, "for _ in range(1):", "    while time > 0:", "        time = time + dt", "return x"),
    ("depends on more", *START, "while time > 0 and self.start():", "    time = time + dt", "return x"),
    (
        "depends on bound",
        *START,
        "for bound in (0.1, 0.2):",
        "    pass",
        "while time > bound:",
        "    time = time + dt",
        "return x",
    ),
    (
        "not understood",
        *START,
        "i = 4",
        "step = torch.tensor(-1 / i)",
        "i = 0",
        "while time > 0 and i < 10:",
        "    time = time + step",
        "    i += 1",
        "return x",
    ),
    (
        "not understood",
        *START,
        "other = time.view(1)",
        "other.add_(dt)",
        "while time > 0:",
        "    time = time + dt",
        "return x",
    ),
    ("may be changed", *START, "self.steps = 4", "while time > -1.0 / self.steps:", "    time = time + dt", "return x"),
    ("where other code", *START, "self.time = time", "while time > 0:", "    time += dt", "return x"),
]


@pytest.mark.parametrize(("why", "lines"), [(why, lines) for why, *lines in REFUSED])
def test_what_is_not_understood_is_refused(tmp_path: Path, why: str, lines: list[str]) -> None:
    before = target(tmp_path, *lines)
    found = loops.find(before.observe())
    assert found
    for site in found:
        with pytest.raises(CannotRewrite, match=why):
            loops.rewrite(before.tree, site)


def test_the_whole_compiles_into_one_graph(tmp_path: Path) -> None:
    before = target(tmp_path, *COUNTED["as flow matching has it"])
    after = before.with_files(loops.rewrite(before.tree, only(loops.find(before.observe()))))
    with after.built() as (model, draw):
        expected = model(*draw())
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*draw()), expected)
