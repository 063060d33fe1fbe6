"""Sources as people have them: whatever is proposed for them computes the same, and what cannot be is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.proposers import Platform
from agent.step_names import STEPS
from tests.agent.proposed import TASKS, copy_of, propose
from tests.files import write_files
from tests.observed import same_results
from tools.diff.patch import AppliedPatch, PatchRules, plan_patch, tree_reader

pytestmark = pytest.mark.slow

MODEL = (TASKS / "decoder" / "model.py").read_text().replace("plain", "größte")
SPELLINGS = {
    "tabs": lambda text: text.replace("    ", "\t"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "Latin-1": lambda text: "# -*- coding: latin-1 -*-\n" + text,
    "no newline at the end": lambda text: text.rstrip(),
    "names that are no ASCII": lambda text: text.replace("scores", "größen"),
    "a notebook's export": lambda text: (
        "#!/usr/bin/env python\n# coding: utf-8\n\n# In[1]:\n\n" + text.replace("class MLP", "# In[2]:\n\n\nclass MLP")
    ),
    "decorated classes": lambda text: text.replace("class MLP", "def same(cls):\n    return cls\n\n@same\nclass MLP"),
    "slots": lambda text: text.replace("class MLP(nn.Module):\n", "class MLP(nn.Module):\n    __slots__ = ('a',)\n"),
    "a class in a function": lambda text: text.replace(
        "class MLP(nn.Module):\n", "def make():\n  class MLP(nn.Module):\n"
    ).replace("class DecoderLayer", "  return MLP\n\nMLP = make()\n\nclass DecoderLayer"),
    "a generated class": lambda text: text.replace(
        "class Decoder(", "exec('class Gone(nn.Module): pass')\n\nclass Decoder("
    ),
    "hooks": lambda text: text.replace(
        "self.mlp = MLP(config)\n",
        "self.mlp = MLP(config)\n"
        "        self.attention.q_proj.register_forward_hook(lambda m, given, out: out * 1.5)\n",
    ),
    "a function of its own gradient": lambda text: text.replace(
        "class MLP",
        "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n\nclass MLP",
    ).replace("F.silu(self.gate_proj(x))", "F.silu(Twice.apply(self.gate_proj(x)))"),
    "a scripted function": lambda text: text.replace(
        "class MLP", "@torch.jit.script\ndef twice(x):\n    return x * 2\n\nclass MLP"
    ).replace("F.silu(self.gate_proj(x))", "F.silu(twice(self.gate_proj(x)))"),
}


@pytest.mark.parametrize("name", list(SPELLINGS))
def test_what_is_proposed_applies_and_computes_the_same(tmp_path: Path, name: str) -> None:
    before, text = copy_of(tmp_path, "decoder"), SPELLINGS[name](MODEL)
    write_files(before.tree, {"bench.py": before.text("bench.py").replace("224, 8, 8, 2", "224, 2, 8, 2")})
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
