"""Norms and gates are known by their numbers. What a bench shows of one configuration holds for no other: kernels ask
what they stand in for, or stay away.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests import observed
from tests.observed import Target, cases, only, same_results
from tools.candidate import Site
from tools.rewrite import CannotRewrite, fused_kernels, kernels

BEFORE = """
class Act(nn.Module):
    def forward(self, x):
        return F.silu(x)

class OtherAct(Act):
    def forward(self, x):
        return F.silu(x)

class Configured(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)

class Gate(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x) * x

class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain, self.tiny, self.shape = nn.Parameter(torch.rand(size)), 1e-6, (size,)
        {norm_setup}

    def _normed(self, h):
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.tiny)

    def forward(self, h):
        '''Not called a norm anywhere.'''
        {norm}

def local(offset):
    class Local(Scale):
        def forward(self, h):
            return (offset + self.gain) * self._normed(h)

    class LocalAct(nn.Module):
        def forward(self, x):
            return F.silu(x * offset)

    return Local(16), LocalAct()

def turn(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)
"""
PLAIN = "return self.gain * self._normed(h)"
GATE = "return self.act(self.a(x)) * self.b(x)"
SUM = "return self.scale(x + self.a(x))"


def target(
    tmp_path: Path,
    forward: str = "return self.scale(x)",
    norm: str = PLAIN,
    norm_setup: str = "pass",
    act: str = "nn.SiLU()",
    inputs: str = "(torch.randn(2, 5, 16),)",
) -> Target:
    before = BEFORE.replace("{norm_setup}", norm_setup).replace("{norm}", norm.replace("\n", "\n        "))
    init = f"""self.a, self.b, self.mode, self.turn = nn.Linear(16, 16), nn.Linear(16, 16), "none", turn
self.act, self.scale, self.low = {act}, Scale(16), Scale(16).bfloat16()"""
    return Target.of_forward(tmp_path / "tree", forward, init, before=before, inputs=inputs)


def sites(found: Target, kind: str) -> list[Site]:
    seen = found.observe()
    return [site for site in (*kernels.find(seen), *fused_kernels.find(seen)) if site.kind == kind]


def rewritten(before: Target, kind: str) -> Target:
    return observed.rewritten(before, fused_kernels if kind in fused_kernels.NAMES else kernels, kind=kind)


def called(tree: Target, change: Callable[[Any], object]) -> torch.Tensor:
    """What the model gives after a change to its modules."""
    with tree.built() as (model, draw):
        change(model)
        out: torch.Tensor = model(*draw())
        return out


# -- gates

TWO = "return self.act[0](x) + self.act[1](x)"
GATES = [
    ("return F.silu(self.a(x)) * self.b(x)", "nn.SiLU()", "gated_mul(self.a(x), self.b(x))"),
    ("return F.gelu(self.a(x)) * self.b(x)", "nn.SiLU()", 'gated_mul(self.a(x), self.b(x), "gelu")'),
    ('return self.b(x) * F.gelu(self.a(x), approximate="tanh")', "nn.SiLU()", 'self.b(x), "gelu_tanh")'),
    ("return self.b(x) * self.act(self.a(x))", "nn.SiLU()", "gated_mul(self.a(x), self.b(x), self.act)"),
    (GATE, "Act()", 'gated_mul(self.a(x), self.b(x), self.act, silu="model.Act")'),
    (TWO, "nn.ModuleList([Gate(Act()), Gate(Act())])", 'gated_mul(x, x, self.act, silu="model.Act")'),
]
OTHER_GATES = [
    ("return F.silu(self.a(x)) * 2.0", "Act()", ""),
    ("return F.relu(self.a(x)) * self.b(x)", "Act()", ""),
    ("return F.silu(self.a(x)) + self.b(x)", "Act()", ""),
    ("return (lambda g: g * self.b(x))(F.silu(self.a(x)))", "Act()", "not one product on one line"),
    ("return F.gelu(self.a(x), approximate=self.mode) * self.b(x)", "Act()", "not one product"),
    (GATE, "local(1.0)[1]", "may compute something else"),
    (GATE, "Configured(nn.functional.silu)", "may compute something else"),
    (TWO, "nn.ModuleList([Gate(Act()), Gate(OtherAct())])", "may compute something else"),
]


@pytest.mark.parametrize(("forward", "act", "wanted"), GATES)
def test_a_gate_becomes_one_call_that_names_its_class(tmp_path: Path, forward: str, act: str, wanted: str) -> None:
    before = target(tmp_path, forward, act=act)
    after = rewritten(before, "gated_activation")
    assert wanted in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize(("forward", "act", "why"), OTHER_GATES)
def test_what_is_no_such_gate_or_may_be_another_stays(tmp_path: Path, forward: str, act: str, why: str) -> None:
    before = target(tmp_path, forward, act=act)
    found = sites(before, "gated_activation")
    assert why or found == []
    for site in found:
        with pytest.raises(CannotRewrite, match=why):
            kernels.rewrite(before.tree, site)


def test_of_two_gates_on_a_line_each_gets_its_own_activation(tmp_path: Path) -> None:
    before = target(tmp_path, "return F.silu(self.a(x)) * self.b(x) + F.gelu(self.b(x)) * self.a(x)")
    found = {site.detail["activation"]: site for site in sites(before, "gated_activation")}
    text = before.with_files(kernels.rewrite(before.tree, found["gelu"])).text()
    assert 'F.silu(self.a(x)) * self.b(x) + gated_mul(self.b(x), self.a(x), "gelu")' in text


def doubled(name: str) -> Callable[[Any], object]:
    return lambda model: getattr(model, name).register_forward_hook(lambda module, given, out: out * 2)


@pytest.mark.parametrize("act", [nn.GELU(), nn.GELU(approximate="tanh"), nn.ReLU(), nn.SiLU(), None], ids=str)
def test_a_model_of_another_configuration_keeps_its_activation(tmp_path: Path, act: nn.Module | None) -> None:
    before = target(tmp_path, GATE)
    after = rewritten(before, "gated_activation")
    change = doubled("act") if act is None else lambda model: setattr(model, "act", act)
    assert torch.equal(*(called(tree, change) for tree in (before, after)))


# -- norms

HALF = "(torch.randn(2, 5, 16).bfloat16(),)"
LLAMA = """n = h.float() * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + self.tiny)
return self.gain * n.to(h.dtype)"""
GEMMA = """n = h.float() / torch.sqrt((h.float() ** 2).mean(-1, keepdim=True) + self.tiny)
return (n * (1.0 + self.gain.float())).type_as(h)"""
ONCE = "\n        if fused is not None:\n            return fused\n"
OWN = " if type(self) is __class__ else None"  # a subclass may replace what helps
NORMS = f"""
- {LLAMA}
  => fused = rms_norm(h, self.gain, self.tiny, only="float32"){ONCE}
- {GEMMA}
  => fused = rms_norm(h, self.gain, self.tiny, offset=1.0, only="float32"){ONCE}
- self.width = 16; return self.gain * F.rms_norm(h, (self.width,), None, self.tiny)
  => rms_norm(h, self.gain, self.tiny, only="float32")
- type(self).least = 1e-3; return self.gain * F.rms_norm(h, self.gain.shape, None, self.least)
  => rms_norm(h, self.gain, self.least, only="float32")
- self.shift = None; return F.layer_norm(h, self.gain.shape, self.gain, self.shift, self.tiny)
  => ratchet_layer_norm(h, self.gain, self.shift, self.tiny, only="float32")
- return F.layer_norm(h, self.shape, self.gain, None, self.tiny)
  => fused = ratchet_layer_norm(h, self.gain, None, self.tiny, only="float32"){OWN}
- {PLAIN}
  => fused = rms_norm(h, self.gain, self.tiny, only="float32"){OWN}
- return self.gain * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5))
  => fused = rms_norm(h, self.gain, 1e-05, only="float32"){ONCE}
"""
OTHER_NORMS = """
- h = h - h.mean(-1, keepdim=True); n = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6); return self.gain * n
- return self.gain * h / (h.pow(2).mean(-1, keepdim=True).sqrt() + 1e-3)
- return self.gain * h / (h.abs().mean(-1, keepdim=True) + self.tiny)
- self.unit = False; return (1 + self.gain if self.unit else self.gain) * self._normed(h)
- self.scale = 1.0; return self.gain * self.scale * self._normed(h)
- self.kind = 'rms'; return self.gain * getattr(self, f'_{self.kind}ed', self._normed)(h)
- self.normed = self._normed; return self.gain * self.normed(h)
- return self.gain * self._normed(h) if not self.training else h
- return vars(self).get('scale', 1) * getattr(self, 'scale', 1) * self.gain * self._normed(h)
- self.bias = None; return F.layer_norm(h, self.shape, self.gain, None if self.bias is None else -self.bias, self.tiny)
"""


def with_norm(tmp_path: Path, norm: str) -> Target:
    """A first line that begins with an attribute is one of the constructor."""
    setup, _, rest = norm.partition("\n") if norm.startswith(("self.", "type(")) else ("pass", "", norm)
    return target(tmp_path, norm=rest, norm_setup=setup)


@pytest.mark.parametrize(("norm", "wanted"), cases(NORMS))
def test_a_norm_is_recognised_by_its_numbers(tmp_path: Path, norm: str, wanted: str) -> None:
    before = with_norm(tmp_path, norm)
    kind = "layer_norm" if "layer_norm" in wanted else "rms_norm"
    site = only(sites(before, kind))
    assert (site.module_class, site.detail["weight"]) == ("Scale", "gain")
    after = rewritten(before, kind)
    assert wanted in after.text()
    assert same_results(before, after), "off the GPU the class's own code runs"


@pytest.mark.parametrize("norm", cases(OTHER_NORMS))
def test_what_computes_something_else_or_has_a_flag_is_no_norm(tmp_path: Path, norm: str) -> None:
    assert sites(with_norm(tmp_path, norm), "layer_norm" if "layer_norm" in norm else "rms_norm") == []


def test_a_class_that_a_function_makes_is_no_norm(tmp_path: Path) -> None:
    assert sites(target(tmp_path, "return self.act(x)", act="local(1.0)[0]"), "rms_norm") == []


def test_the_dtype_in_which_a_norm_was_seen_is_said(tmp_path: Path) -> None:
    gemma = "return ((1 + self.gain.float()) * self._normed(h.float())).to(h.dtype)"
    after = rewritten(target(tmp_path, "return self.low(x)", gemma, inputs=HALF), "rms_norm")
    assert 'rms_norm(h, self.gain, self.tiny, offset=1.0, cast_first=False, only="bfloat16")' in after.text()


def test_a_norm_that_widens_is_none_in_half_precision(tmp_path: Path) -> None:
    wide = "return self.gain.float() * self._normed(h.float())"
    assert sites(target(tmp_path, "return self.low(x)", wide, inputs=HALF), "rms_norm") == []
    assert 'only="float32"' in rewritten(target(tmp_path / "wide", norm=wide), "rms_norm").text()


# -- sums


def test_a_sum_in_another_dtype_than_its_norm_was_seen_in_stays(tmp_path: Path) -> None:
    first = "x = self.scale(x)\nx = x.bfloat16()\n"
    assert sites(target(tmp_path, first + "return self.low(x + x * 2)"), "add_rms") == []


KERNEL = """
# Ratchet: a stand-in that applies everywhere.
import torch

def add_rms_norm(x, residual, weight, eps, only=None):
    total = x + residual
    return weight * total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + eps), total
"""


class Renamed(nn.LayerNorm):
    """Has what the norm that was seen has."""

    @property
    def gain(self) -> torch.Tensor:
        return self.weight

    @property
    def tiny(self) -> float:
        return self.eps


@pytest.mark.parametrize("norm", [nn.LayerNorm(16), Renamed(16), nn.Identity(), None], ids=str)
@pytest.mark.parametrize("forward", [SUM, "x = x + self.a(x)\nreturn x * self.scale(x)"], ids=["given", "assigned"])
def test_a_sum_before_another_norm_is_not_fused(tmp_path: Path, forward: str, norm: nn.Module | None) -> None:
    before = target(tmp_path, forward)
    after = rewritten(before, "add_rms").with_files({"ratchet_ops/rms_norm.py": KERNEL})
    assert 'if is_exactly(self.scale, "model.Scale"):' in after.text()
    change = doubled("scale") if norm is None else lambda model: setattr(model, "scale", norm)
    assert torch.equal(*(called(tree, change) for tree in (before, after)))
    assert same_results(before, after), "the stand-in, where its class is the one that was seen"


# -- rotations


def test_a_rotation_that_a_configuration_may_choose_stays(tmp_path: Path) -> None:
    lines = "c = torch.ones(5, 16)\nreturn x * c + self.turn(x) * c"
    before = target(tmp_path, lines)
    with pytest.raises(CannotRewrite, match=r"self\.turn may be another function"):
        fused_kernels.rewrite(before.tree, only(sites(before, "rotary")))
