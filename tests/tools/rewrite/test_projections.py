"""Layers given the same tensor become one product; layers that may not be are called as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.rewrite import CannotRewrite, projections

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16)
        self.k = nn.Linear(16, 8, bias=False)
        self.v = nn.Linear(16, 8)
        self.out = nn.Linear(32, 16)

    def forward(self, x):
{body}
"""

FUSED = [
    (
        "one after the other",
        """
        q = self.q(x)
        k = self.k(x)
        v = self.v(x)
        return self.out(torch.cat([q, k, v], -1))""",
    ),
    ("in one expression", "        return self.out(torch.cat([self.q(x), self.k(x), F.silu(self.v(x))], -1))"),
    ("by keyword", "        return self.out(torch.cat([self.q(input=x), self.k(input=x), self.v(input=x)], -1))"),
    (
        "viewed and turned",
        """
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        k = self.k(x).view(b, t, 2, 4).transpose(1, 2)
        v = self.v(x).view(b, t, 2, 4).transpose(1, 2)
        return self.out(torch.cat([q, k, v], 1).transpose(1, 2).reshape(b, t, 32))""",
    ),
    (
        "in a branch",
        """
        if x.dim() == 3:
            y = torch.cat([self.q(x), self.k(x), self.v(x)], -1)
        return self.out(y)""",
    ),
]

LEFT_ALONE = [
    (
        "the input changes between",
        """
        q = self.q(x)
        x = x.contiguous()
        return self.out(torch.cat([q, self.k(x), self.v(x)], -1))""",
    ),
    ("one is called twice", "        return self.out(torch.cat([self.q(x), self.k(x), self.v(x)], -1)) + self.q(x)"),
    (
        "one is called in a branch",
        """
        q = self.q(x)
        if x.dim() == 3:
            k = self.k(x)
        return self.out(torch.cat([q, k, self.v(x)], -1))""",
    ),
    (
        "one is called on a condition",
        """
        k = self.k(x) if x.dim() == 3 else None
        return self.out(torch.cat([self.q(x), k, self.v(x)], -1))""",
    ),
]


def packed(target: Target) -> Target:
    return target.with_files(projections.rewrite(target.tree, projections.find(target.observe())))


@pytest.mark.parametrize("body", [f[1] for f in FUSED], ids=[f[0] for f in FUSED])
def test_layers_with_one_input_become_one_product(tmp_path: Path, body: str) -> None:
    before = Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body.strip("\n")))
    site = only(projections.find(before.observe()))
    assert site.detail["names"] == ["q", "k", "v"] and site.line > 0
    after = packed(before)
    assert "self.packed_q_k_v = PackedLinear(self.q, self.k, self.v)" in after.text()
    assert same_results(before, after, {}, {})
    with after.built() as (model, draw):
        model(*draw())
        assert model.packed_q_k_v._weight is not None


@pytest.mark.parametrize("body", [f[1] for f in LEFT_ALONE], ids=[f[0] for f in LEFT_ALONE])
def test_layers_that_may_not_be_fused_are_left_alone(tmp_path: Path, body: str) -> None:
    target = Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body.strip("\n")))
    sites = projections.find(target.observe())
    if sites:
        with pytest.raises(CannotRewrite):
            projections.rewrite(target.tree, sites)


def test_layers_are_found_by_what_they_are_given_not_by_name(tmp_path: Path) -> None:
    body = "        return self.out(torch.cat([self.q(x), self.k(x + 1), self.v(x)], -1))"
    target = Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body))
    assert only(projections.find(target.observe())).detail["names"] == ["q", "v"]


def test_a_tensor_changed_in_place_is_another_input(tmp_path: Path) -> None:
    body = """
        q = self.q(x)
        x.add_(1.0)
        return self.out(torch.cat([q, self.k(x), self.v(x)], -1))"""
    target = Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body.strip("\n")))
    assert only(projections.find(target.observe())).detail["names"] == ["k", "v"]


def test_layers_made_elsewhere_are_left_alone(tmp_path: Path) -> None:
    text = MODEL.replace("self.v = nn.Linear(16, 8)", "self.add()").replace(
        "    def forward", "    def add(self):\n        self.v = nn.Linear(16, 8)\n\n    def forward"
    )
    body = "        return self.out(torch.cat([self.q(x), self.k(x), self.v(x)], -1))"
    target = Target.of_model(tmp_path / "tree", text.replace("{body}", body))
    with pytest.raises(CannotRewrite, match="is not made in"):
        packed(target)


@pytest.mark.parametrize(("init", "left"), [("nn.Module", True), ("Model", False), ("super()", False)])
def test_a_class_whose_parts_another_one_makes_is_left_alone(tmp_path: Path, init: str, left: bool) -> None:
    body = "        return self.out(torch.cat([self.q(x), self.k(x), self.v(x)], -1))"
    this = "" if init == "super()" else "self"
    text = (
        MODEL.replace("{body}", body)
        + f"\n\nclass Other(Model):\n    def __init__(self):\n        {init}.__init__({this})\n"
    )
    target = Target.of_model(tmp_path / "tree", text)
    if not left:
        assert "self.packed_q_k_v = " in packed(target).text()
        return
    with pytest.raises(CannotRewrite, match=r"Other is made without Model.__init__"):
        packed(target)


def test_a_hooked_layer_is_no_site(tmp_path: Path) -> None:
    text = MODEL.replace("    def forward", "        self.k.register_forward_hook(lambda *a: None)\n\n    def forward")
    body = "        return self.out(torch.cat([self.q(x), self.k(x), self.v(x)], -1))"
    target = Target.of_model(tmp_path / "tree", text.replace("{body}", body))
    assert projections.find(target.observe()) == []
