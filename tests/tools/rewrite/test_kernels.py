"""Kernels go where the numbers say what a class computes; its own code stays for where they do not apply."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.rewrite import CannotRewrite, kernels

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size))
        self.tiny = 1e-6

    def forward(self, h):
        '''Not called a norm anywhere.'''
{body}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale(16)
        self.a, self.b, self.act = nn.Linear(16, 32), nn.Linear(16, 32), nn.SiLU()

    def forward(self, x):
        h = self.scale(x)
        return {gate}
"""
LLAMA = """
        n = h.float() * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + self.tiny)
        return self.gain * n.to(h.dtype)"""
GEMMA = """
        n = h.float() / torch.sqrt((h.float() ** 2).mean(-1, keepdim=True) + self.tiny)
        return (n * (1.0 + self.gain.float())).type_as(h)"""
NO_NORMS = {
    "the mean is taken off first": "        h = h - h.mean(-1, keepdim=True)\n"
    "        n = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.tiny)\n        return self.gain * n",
    "eps is outside the root": "        return self.gain * h / (h.pow(2).mean(-1, keepdim=True).sqrt() + 1e-3)",
    "no square": "        return self.gain * h / (h.abs().mean(-1, keepdim=True) + self.tiny)",
}


def target(tmp_path: Path, body: str = LLAMA, gate: str = "F.silu(self.a(h)) * self.b(h)") -> Target:
    text = MODEL.replace("{body}", body.strip("\n")).replace("{gate}", gate)
    return Target.of_model(tmp_path / "tree", text)


@pytest.mark.parametrize(("body", "offset"), [(LLAMA, 0.0), (GEMMA, 1.0)])
def test_a_norm_is_recognised_by_its_numbers(tmp_path: Path, body: str, offset: float) -> None:
    before = target(tmp_path, body)
    site = next(s for s in kernels.find(before.observe()) if s.kind == "rms_norm")
    assert (site.module_class, site.detail["weight"], site.detail["eps"]) == ("Scale", "gain", "tiny")
    assert site.detail["offset"] == offset
    after = before.with_files(kernels.rewrite(before.tree, site))
    call = "fused = rms_norm(h, self.gain, self.tiny" + (", offset=1.0" if offset else "") + ', only="float32")'
    assert f"{call}\n        if fused is not None:\n            return fused\n" in after.text()
    assert same_results(before, after), "off the GPU the class's own code runs"


@pytest.mark.parametrize("body", NO_NORMS.values(), ids=list(NO_NORMS))
def test_what_computes_something_else_is_no_norm(tmp_path: Path, body: str) -> None:
    assert [s for s in kernels.find(target(tmp_path, body).observe()) if s.kind == "rms_norm"] == []


@pytest.mark.parametrize(
    ("gate", "wanted"),
    [
        ("F.silu(self.a(h)) * self.b(h)", "gated_mul(self.a(h), self.b(h))"),
        ("F.gelu(self.a(h)) * self.b(h)", 'gated_mul(self.a(h), self.b(h), "gelu")'),
        ('self.b(h) * F.gelu(self.a(h), approximate="tanh")', 'gated_mul(self.a(h), self.b(h), "gelu_tanh")'),
        ("self.b(h) * self.act(self.a(h))", "gated_mul(self.a(h), self.b(h), self.act)"),
    ],
)
def test_a_gate_becomes_one_call(tmp_path: Path, gate: str, wanted: str) -> None:
    before = target(tmp_path, gate=gate)
    site = only([s for s in kernels.find(before.observe()) if s.kind == "gated_activation"])
    after = before.with_files(kernels.rewrite(before.tree, site))
    assert wanted in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize(
    "gate", ["F.silu(self.a(h)) * 2.0", "F.relu(self.a(h)) * self.b(h)", "F.silu(self.a(h)) + self.b(h)"]
)
def test_what_is_no_such_gate_is_no_site(tmp_path: Path, gate: str) -> None:
    assert [s for s in kernels.find(target(tmp_path, gate=gate).observe()) if s.kind == "gated_activation"] == []


def test_a_gate_in_two_steps_is_left_alone(tmp_path: Path) -> None:
    before = target(tmp_path, gate="(lambda g: g * self.b(h))(F.silu(self.a(h)))")
    for site in kernels.find(before.observe()):
        if site.kind == "gated_activation":
            with pytest.raises(CannotRewrite):
                kernels.rewrite(before.tree, site)
