"""Layers given the same tensor become one product; layers that may not be are called as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, cases, only, same_results
from tools.rewrite import CannotRewrite, projections

INIT = """self.q = nn.Linear(16, 16)
self.k = nn.Linear(16, 8, bias=False)
self.v = nn.Linear(16, 8)
self.out = nn.Linear(32, 16)"""
ALL = "return self.out(torch.cat([self.q(x), self.k(x), self.v(x)], -1))"
FUSED = """
- q = self.q(x); k = self.k(x); v = self.v(x); return self.out(torch.cat([q, k, v], -1))
- return self.out(torch.cat([self.q(x), self.k(x), F.silu(self.v(x))], -1))
- return self.out(torch.cat([self.q(input=x), self.k(input=x), self.v(input=x)], -1))
- b, t, _ = x.shape
  q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
  k = self.k(x).view(b, t, 2, 4).transpose(1, 2)
  v = self.v(x).view(b, t, 2, 4).transpose(1, 2)
  return self.out(torch.cat([q, k, v], 1).transpose(1, 2).reshape(b, t, 32))
- if x.dim() == 3:
      y = torch.cat([self.q(x), self.k(x), self.v(x)], -1)
  return self.out(y)
"""
LEFT_ALONE = """
- q = self.q(x); x = x.contiguous(); return self.out(torch.cat([q, self.k(x), self.v(x)], -1))
- return self.out(torch.cat([self.q(x), self.k(x), self.v(x)], -1)) + self.q(x)
- q = self.q(x)
  if x.dim() == 3:
      k = self.k(x)
  return self.out(torch.cat([q, k, self.v(x)], -1))
- k = self.k(x) if x.dim() == 3 else None; return self.out(torch.cat([self.q(x), k, self.v(x)], -1))
"""


def target(tmp_path: Path, body: str = ALL, init: str = INIT) -> Target:
    return Target.of_forward(tmp_path / "tree", body, init)


def packed(target: Target) -> Target:
    return target.with_files(projections.rewrite(target.tree, projections.find(target.observe())))


@pytest.mark.parametrize("body", cases(FUSED))
def test_layers_with_one_input_become_one_product(tmp_path: Path, body: str) -> None:
    before = target(tmp_path, body)
    assert only(projections.find(before.observe())).detail["names"] == ["q", "k", "v"]
    after = packed(before)
    assert "self.packed_q_k_v = PackedLinear(self.q, self.k, self.v)" in after.text()
    assert same_results(before, after, {}, {})
    with after.built() as (model, draw):
        model(*draw())
        assert model.packed_q_k_v._weight is not None


@pytest.mark.parametrize("body", cases(LEFT_ALONE))
def test_layers_that_may_not_be_fused_are_left_alone(tmp_path: Path, body: str) -> None:
    before = target(tmp_path, body)
    if projections.find(before.observe()):
        with pytest.raises(CannotRewrite):
            packed(before)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("return self.out(torch.cat([self.q(x), self.k(x + 1), self.v(x)], -1))", ["q", "v"]),
        ("q = self.q(x)\nx.add_(1.0)\nreturn self.out(torch.cat([q, self.k(x), self.v(x)], -1))", ["k", "v"]),
    ],
)
def test_layers_are_found_by_what_they_are_given_not_by_name(tmp_path: Path, body: str, names: list[str]) -> None:
    assert only(projections.find(target(tmp_path, body).observe())).detail["names"] == names


def test_layers_made_elsewhere_are_left_alone(tmp_path: Path) -> None:
    init = INIT.replace("self.v = nn.Linear(16, 8)", 'setattr(self, "v", nn.Linear(16, 8))')
    with pytest.raises(CannotRewrite, match="is not made in"):
        packed(target(tmp_path, init=init))


@pytest.mark.parametrize(("init", "left"), [("nn.Module", True), ("Model", False), ("super()", False)])
def test_a_class_whose_parts_another_one_makes_is_left_alone(tmp_path: Path, init: str, left: bool) -> None:
    before = target(tmp_path)
    call = f"{init}.__init__({'' if init == 'super()' else 'self'})"
    text = f"{before.text()}\n\nclass Other(Model):\n    def __init__(self):\n        {call}\n"
    before = before.with_files({"model.py": text})
    if not left:
        assert "self.packed_q_k_v = " in packed(before).text()
        return
    with pytest.raises(CannotRewrite, match=r"Other is made without Model.__init__"):
        packed(before)


def test_a_hooked_layer_is_no_site(tmp_path: Path) -> None:
    init = f"{INIT}\nself.k.register_forward_hook(lambda *a: None)"
    assert projections.find(target(tmp_path, init=init).observe()) == []
