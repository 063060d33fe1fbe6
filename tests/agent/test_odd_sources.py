"""Sources as people have them: whatever is proposed for them computes the same, and what cannot be is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.proposers import Platform
from agent.step_names import STEPS
from tests.agent.proposed import propose
from tests.observed import Target, same_results
from tools.diff.patch import AppliedPatch, PatchRules, plan_patch, tree_reader

pytestmark = pytest.mark.slow

MODEL = '''
import math
import torch
import torch.nn.functional as F
from torch import nn

class Attention(nn.Module):
    """Größe und Köpfe."""

    def __init__(self, size, heads):
        super().__init__()
        self.heads, self.size = heads, size // heads
        self.q, self.k, self.v = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.out = nn.Linear(size, size)

    def forward(self, x):
        b, t, n = x.shape
        q = self.q(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(b, t, self.heads, self.size).transpose(1, 2)
        v = self.v(x).view(b, t, self.heads, self.size).transpose(1, 2)
        mask = torch.tril(torch.ones(t, t, device=x.device))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        scores = scores.masked_fill(mask == 0, float("-inf"))
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, n)
        return self.out(y.clone())

class MLP(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(size, 32), nn.Linear(size, 32), nn.Linear(32, size)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.mlp = Attention(16, 2), MLP(16)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)
'''
SPELLINGS = {
    "tabs": lambda text: text.replace("    ", "\t"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "a byte order mark": lambda text: "\ufeff" + text.lstrip(),
    "Latin-1": lambda text: "# -*- coding: latin-1 -*-\n" + text.lstrip(),
    "no newline at the end": lambda text: text.rstrip(),
    "names that are no ASCII": lambda text: text.replace("scores", "größen"),
    "a notebook's export": lambda text: (
        "#!/usr/bin/env python\n# coding: utf-8\n\n# In[1]:\n\n" + text.replace("class MLP", "# In[2]:\n\n\nclass MLP")
    ),
    "decorated classes": lambda text: text.replace("class MLP", "def same(cls):\n    return cls\n\n@same\nclass MLP"),
    "slots": lambda text: text.replace("class MLP(nn.Module):\n", "class MLP(nn.Module):\n    __slots__ = ('a',)\n"),
    "a class in a function": lambda text: text.replace(
        "class MLP(nn.Module):\n", "def make():\n  class MLP(nn.Module):\n"
    ).replace("class Model", "  return MLP\n\nMLP = make()\n\nclass Model"),
    "a generated class": lambda text: text.replace(
        "class Model(", "exec('class Gone(nn.Module): pass')\n\nclass Model("
    ),
    "hooks": lambda text: text.replace(
        "Attention(16, 2), MLP(16)\n",
        "Attention(16, 2), MLP(16)\n        self.attention.q.register_forward_hook(lambda m, given, out: out * 1.5)\n",
    ),
    "a function of its own gradient": lambda text: text.replace(
        "class MLP",
        "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n\nclass MLP",
    ).replace("F.silu(self.gate(x))", "F.silu(Twice.apply(self.gate(x)))"),
    "a scripted function": lambda text: text.replace(
        "class MLP", "@torch.jit.script\ndef twice(x):\n    return x * 2\n\nclass MLP"
    ).replace("F.silu(self.gate(x))", "F.silu(twice(self.gate(x)))"),
}


@pytest.mark.parametrize("name", list(SPELLINGS))
def test_what_is_proposed_applies_and_computes_the_same(tmp_path: Path, name: str) -> None:
    before = Target.of_model(tmp_path / "tree", MODEL.lstrip(), inputs="(torch.randn(2, 6, 16),)")
    text = SPELLINGS[name](MODEL.lstrip())
    (before.tree / "model.py").write_bytes(text.encode("latin-1" if name == "Latin-1" else "utf-8"))
    seen, platform = before.observe(), Platform(device="cuda", triton=True, cpp_compiler=True)
    steps = [step for step in STEPS if step != "compile_model"]
    proposed = [candidate for step in steps for candidate in propose(before, step, seen, platform)[0]]
    assert proposed, "something can be done for each of them"
    for candidate in proposed:
        plan = plan_patch(candidate.diff, tree_reader(before.tree), PatchRules())
        assert isinstance(plan, AppliedPatch), (candidate.title, plan)
        after = before.with_files({})
        for path, state in plan.files.items():
            assert state is not None
            (after.tree / path).parent.mkdir(exist_ok=True)
            (after.tree / path).write_bytes(state.data)
        assert same_results(before, after), candidate.title
        data = (after.tree / "model.py").read_bytes()
        assert (data.count(b"\n") == data.count(b"\r\n")) == (name == "CRLF"), candidate.title
