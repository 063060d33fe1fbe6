"""A linear layer and the activation that alone reads its result are found by their numbers, and become one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.candidate import Site
from tools.rewrite import CannotRewrite, epilogues

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.bare, self.norm = nn.Linear(16, 32, bias=False), nn.LayerNorm(16)
        self.tanh, self.relu, self.erf = nn.GELU(approximate="tanh"), nn.ReLU(), nn.GELU()
        self.clipped, self.approximate = nn.Hardtanh(0.0, 20.0), "tanh"

    def forward(self, x):
{body}
"""


def target(tmp_path: Path, *lines: str) -> Target:
    body = "\n".join(f"        {line}" for line in lines)
    return Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body), inputs="(torch.randn(2, 6, 16),)")


def sites(found: Target) -> list[Site]:
    return epilogues.find(found.observe())


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (
            ("return self.down(F.relu(self.up(self.norm(x))))",),
            'return self.down(activated_linear(self.up, self.norm(x), "relu"))',
        ),
        (("return self.down(self.tanh(self.up(x)))",), "return self.down(activated_linear(self.up, x, self.tanh))"),
        (
            ("x = self.up(x)", "x = self.relu(x)", "return self.down(x)"),
            "x = activated_linear(self.up, x, self.relu)\n        return self.down(x)",
        ),
        (
            ("h = self.up(x)", 'return self.down(F.gelu(h, approximate="tanh")) + x'),
            'h = activated_linear(self.up, x, "gelu_tanh")\n        return self.down(h) + x',
        ),
        (
            ("h = self.up(x)", "y = x * 2", "h = self.down(h.relu())", "return h + y"),
            'h = activated_linear(self.up, x, "relu")\n        y = x * 2\n        h = self.down(h)',
        ),
    ],
)
def test_a_layer_and_its_activation_become_one_call(tmp_path: Path, lines: tuple[str, ...], wanted: str) -> None:
    before = target(tmp_path, *lines)
    site = only(sites(before))
    assert (site.module_class, site.detail["attribute"], site.detail["count"]) == ("Model", "up", 1)
    after = before.with_files(epilogues.rewrite(before.tree, site))
    assert wanted in after.text()
    assert same_results(before, after), "off the GPU the layer and the activation run as they did"
    if "relu" in wanted:  # what a CPU's product can apply as well
        fused = after.with_files({"ratchet_ops/fastest.py": ALWAYS})
        assert same_results(before, fused)


ALWAYS = """
# Ratchet: fastest.py
def applies(x):
    return True

def run(chosen, shape, plain, others, *given):
    (way,) = others(*given)
    assert way.__name__ == "_epilogue"
    return way(*given)
"""


@pytest.mark.parametrize(
    "lines",
    [
        ("return self.down(self.erf(self.up(x)))",),
        ("return self.down(F.gelu(self.up(x)))",),
        ("return self.down(self.clipped(self.up(x)))",),
        ("return self.down(F.relu(self.bare(x)))",),
        ("h = self.up(x)", "return self.down(F.relu(h) + h)"),
        ("return self.down(F.relu(self.up(x) * 2))",),
        ("return self.down(torch.tanh(self.up(x)))",),
    ],
)
def test_what_no_product_can_apply_is_no_site(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert sites(target(tmp_path, *lines)) == []


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("h = self.up(x)", "y = self.down(F.relu(h))", "return y if x is not None else h"), "h is read after"),
        (("h = self.up(x)", "n = h.shape[0]", "return self.down(F.relu(h)) * n"), "h is read or changed before"),
        (("h = self.up(x)", "return self.down(F.relu(h)) * h.shape[0]"), "h is read beside"),
        (("h, n = self.up(x), 2", "return self.down(F.relu(h)) * n"), "not plainly assigned"),
        (
            ("for _ in range(1):", "    h = self.up(x)", "    y = self.down(F.relu(h))", "return y * h.shape[0]"),
            "h is read after",
        ),
        (("if x is not None:", "    h = self.up(x)", "return self.down(F.relu(h))"), "not plainly the layer's"),
        (("h = self.up(input=x)", "return self.down(F.relu(h))"), "self.up is not called with one tensor"),
        (("return self.down(F.relu(self.up(x), inplace=False))",), "no activation is called"),
        (("return self.down(F.gelu(self.up(x), approximate=self.approximate))",), "no activation is called"),
    ],
)
def test_what_is_read_elsewhere_stays(tmp_path: Path, lines: tuple[str, ...], why: str) -> None:
    before = target(tmp_path, *lines)
    with pytest.raises(CannotRewrite, match=why):
        epilogues.rewrite(before.tree, only(sites(before)))
