"""A sum with its norm, rotary embeddings and the top of a softmax are found by what they compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.candidate import Site
from tools.rewrite import CannotRewrite, fused_kernels

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size))

    def forward(self, h):
        return self.gain * h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.gate = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 12)
        self.scale, self.norm = Scale(16), nn.LayerNorm(16)

    def forward(self, x):
{body}
"""


def target(tmp_path: Path, *lines: str, before: str = "") -> Target:
    body = "\n".join(f"        {line}" for line in lines)
    text = MODEL.replace("{body}", body).replace("\n\nclass Model", f"\n{before}\n\nclass Model", 1)
    return Target.of_model(tmp_path / "tree", text, inputs="(torch.randn(2, 6, 16),)")


def sites(found: Target, kind: str) -> list[Site]:
    return [site for site in fused_kernels.find(found.observe()) if site.kind == kind]


SUMS = [
    (
        "add_rms",
        ("x = x + self.a(x)", "return x + self.b(self.scale(x))"),
        'fused = add_rms_norm(x, right, self.scale.gain, 1e-06, only="float32")',
    ),
    (
        "add_rms",
        (
            "residual = x",
            "x = self.a(x)",
            "# kept",
            "x = residual + x",
            "residual = x",
            "x = self.scale(x)",
            "return residual + self.b(x)",
        ),
        'fused = add_rms_norm(residual, x, self.scale.gain, 1e-06, only="float32")',
    ),
    (
        "add_layer",
        ("h = self.a(x)", "return self.b(self.norm(h + x))"),
        'fused = add_layer_norm(h, x, self.norm.weight, self.norm.bias, self.norm.eps, only="float32")',
    ),
    (
        "add_layer",
        ("fused = self.norm(self.a(x) + self.b(x))", "return fused * 2"),
        'fused_ = add_layer_norm(left, right, self.norm.weight, self.norm.bias, self.norm.eps, only="float32")',
    ),
]


@pytest.mark.parametrize(("kind", "lines", "wanted"), SUMS, ids=[wanted for _, _, wanted in SUMS])
def test_a_sum_and_its_norm_become_one_call(tmp_path: Path, kind: str, lines: tuple[str, ...], wanted: str) -> None:
    before = target(tmp_path, *lines)
    site = only(sites(before, kind))
    assert (site.module_class, site.detail["attribute"]) == ("Model", "scale" if kind == "add_rms" else "norm")
    after = before.with_files(fused_kernels.rewrite(before.tree, site))
    assert wanted in after.text() and ("# kept" in lines) == ("# kept" in after.text())
    assert same_results(before, after), "off the GPU the function's own operations run"


@pytest.mark.parametrize(
    "lines",
    [
        ("x = x + self.a(x)", "x[:, 0] = 0.0", "return self.scale(x)"),
        ("x += self.a(x)", "return self.scale(x)"),
        ("x, y = x + self.a(x), 1", "return self.scale(x) * y"),
        ("return self.scale((x + self.a(x)).relu())",),
        ("return self.scale(x + 1.0)",),
        ("while self.scale(x + self.a(x)).sum() > 1e9:", "    x = x * 0.5", "return x"),
    ],
)
def test_a_sum_that_is_anything_else_stays(tmp_path: Path, lines: tuple[str, ...]) -> None:
    before = target(tmp_path, *lines)
    for site in sites(before, "add_rms"):
        with pytest.raises(CannotRewrite):
            fused_kernels.rewrite(before.tree, site)


HALVES = """
def turn(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def spin(q, k, cos, sin):
    q = (q * cos) + (turn(q) * sin)
    return q, cos * k + turn(k) * sin

"""
TABLES = "angles = torch.outer(torch.arange(6.0), torch.arange(16.0) / 16)"


def test_rotary_embeddings_of_queries_and_keys_become_one_call_each(tmp_path: Path) -> None:
    lines = (TABLES, "q, k = spin(self.a(x), self.b(x), angles.cos(), angles.sin())", "return q * k")
    before = target(tmp_path, *lines, before=HALVES)
    site = only(sites(before, "rotary"))
    assert (site.detail["function"], site.detail["count"], len(site.detail["lines"])) == ("spin", 2, 2)
    after = before.with_files(fused_kernels.rewrite(before.tree, site))
    plain = "(q * cos) + (turn(q) * sin)"
    assert f"q = (fused if (fused := rotary(q, cos, sin)) is not None else {plain})" in after.text()
    assert "(fused := rotary(k, cos, sin)) is not None else cos * k + turn(k) * sin" in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize("half", ["torch.cat((b, a), dim=-1)", "torch.cat((a, -b), dim=-1)"])
def test_what_turns_otherwise_is_no_rotary_embedding(tmp_path: Path, half: str) -> None:
    lines = (TABLES, "q, k = spin(self.a(x), self.b(x), angles.cos(), angles.sin())", "return q * k")
    before = target(tmp_path, *lines, before=HALVES.replace("torch.cat((-b, a), dim=-1)", half))
    assert sites(before, "rotary") == []


TOPS = [
    ("scores = torch.softmax(self.gate(x).float(), dim=-1)", "weights, ids = torch.topk(scores, 3, dim=-1)"),
    ("scores = self.gate(x).softmax(-1)", "weights, ids = scores.topk(3)"),
    ("scores = F.softmax(self.gate(x), dim=-1)", "weights, ids = torch.topk(scores, k=3, dim=-1)"),
]


@pytest.mark.parametrize("lines", TOPS, ids=[softmax for softmax, _ in TOPS])
def test_the_top_of_a_softmax_becomes_one_call(tmp_path: Path, lines: tuple[str, ...]) -> None:
    before = target(tmp_path, *lines, "return weights * ids")
    site = only(sites(before, "softmax_topk"))
    after = before.with_files(fused_kernels.rewrite(before.tree, site))
    assert "fused = softmax_topk(logits, 3)" in after.text() and "logits = self.gate(x)" in after.text()
    assert same_results(before, after)


def test_the_softmax_of_narrow_scores_keeps_the_dtype_it_asks_for(tmp_path: Path) -> None:
    narrow = "scores = F.softmax(self.gate(x).bfloat16(), dim=-1, dtype=torch.float)"
    before = target(tmp_path, narrow, "weights, ids = torch.topk(scores, 3, dim=-1)", "return weights * ids")
    after = before.with_files(fused_kernels.rewrite(before.tree, only(sites(before, "softmax_topk"))))
    assert "softmax_topk(logits, 3, dtype=torch.float)" in after.text()
    assert "F.softmax(logits, dim=-1, dtype=torch.float)" in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize(
    "lines",
    [
        ("scores = self.gate(x).softmax(-1)", "weights, ids = torch.topk(scores, 3)", "return scores.sum() * ids"),
        ("scores = self.gate(x).softmax(-1)", "weights, ids = torch.topk(scores, 3, largest=False)", "return ids"),
        ("scores = self.gate(x).softmax(-1)", "return torch.topk(scores, 3).values"),
        ("scores = self.gate(x).softmax(1)", "weights, ids = torch.topk(scores, 3)", "return weights"),
        (
            "wide = x.dtype",
            "scores = self.gate(x).softmax(-1, dtype=wide)",
            "weights, ids = torch.topk(scores, 3)",
            "return weights",
        ),
    ],
)
def test_a_softmax_that_is_used_otherwise_stays(tmp_path: Path, lines: tuple[str, ...]) -> None:
    before = target(tmp_path, *lines)
    for site in sites(before, "softmax_topk"):
        with pytest.raises(CannotRewrite):
            fused_kernels.rewrite(before.tree, site)
