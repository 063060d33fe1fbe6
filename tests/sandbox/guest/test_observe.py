"""The observer says what happened, where, and what it depended on; it changes nothing and stays small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import guest
from tests.observed import Target, cases
from tests.sandbox.guest.conftest import Observe
from tools.observation import ByHand

BLOCK = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 16
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        m = torch.arange(x.shape[1])
        return self.a(x) + m[None, :, None]
"""
BLOCKS = "self.blocks = nn.ModuleList([Block() for _ in range({})])"
THROUGH = "for block in self.blocks: x = block(x)\nreturn x"


def test_classes_operations_and_constants_have_a_place_a_count_and_a_share(observe: Observe) -> None:
    seen = observe(THROUGH, BLOCKS.format(3), BLOCK)
    rows = {row.name: row for row in seen.classes}
    block = rows["Block"]
    assert (block.file, block.count, block.third_party) == ("model.py", 3, False)
    assert block.paths == ["blocks.0", "blocks.1", "blocks.2"]
    assert 0 < block.self_share <= block.inclusive_share <= 1
    assert rows["Linear"].third_party
    assert block.plain_attributes == ["size"] and block.children == {"a": "Linear", "b": "Linear"}
    assert seen.callable.name == "Model" and seen.callable.outermost[0].line > 0
    assert seen.ops and abs(sum(row.share for row in seen.ops) - 1) < 1e-6
    (made,) = (row for row in seen.constants if "arange" in row.operations)
    assert [f"{frame.owner}.{frame.function}" for frame in made.frames][:2] == ["Block.forward", "Model.forward"]
    assert made.count == 3 and not made.mutated
    assert made.frames[0].plain_attributes == ["size"] and made.frames[0].module == "model"


def test_a_model_of_many_layers_stays_within_bounds(observe: Observe) -> None:
    (block,) = (row for row in observe(THROUGH, BLOCKS.format(300), BLOCK).classes if row.name == "Block")
    assert block.count == 300


def test_what_is_replayed_as_a_whole_is_seen_module_by_module(observe: Observe) -> None:
    """As `graphed` does it: a recording is replayed, unless somebody looks."""
    seen = observe("if not torch._C._len_torch_function_stack():\n    return x * 2\nreturn self.a(x)")
    assert next(row for row in seen.classes if row.name == "Linear").inclusive_share > 0
    assert any(row.name == "linear" for row in seen.ops)


NO_CONSTANT = """
- return x + torch.rand(5)[None, :, None]
- return x + self.a.bias.cos()
- return x + x[0, 0].cos()
- m = torch.zeros(5, 16); m[:] = x[0]; return x + m
- m = torch.ones(16, dtype=torch.int32); m ^= x[0, 0].int(); m = m * 2; return x + m
- m = torch.ones(16, dtype=torch.int32); m <<= x[0, 0].int().abs(); m = m * 2; return x + m
- m = torch.ones(16, dtype=torch.int32); m >>= x[0, 0].int().abs(); m = m * 2; return x + m
"""


@pytest.mark.parametrize("body", cases(NO_CONSTANT))
def test_what_depends_on_data_or_chance_is_no_constant(observe: Observe, body: str) -> None:
    assert [row for row in observe(body).constants if set(row.operations) - {"zeros", "ones"}] == []


@pytest.mark.parametrize("write", ["m.add_(1)", "torch.nn.functional.relu(m, inplace=True)", "torch.relu_(input=m)"])
def test_a_constant_written_to_after_its_use_says_so(observe: Observe, write: str) -> None:
    seen = observe(f"m = torch.ones(16)\nx = x + m\n{write}\nreturn x * m")
    assert any(row.mutated for row in seen.constants)


BY_HAND = """
q = k = v = x[:, None]
s = q @ k.transpose(-2, -1) * 0.25
{}
return (torch.softmax(s, -1) @ v)[:, 0]"""
MASKS = """
- pass => []
- s = s + torch.full((5, 5), float('-inf')).triu(1) => [True]
- s = s.masked_fill(torch.ones(5, 5).tril() == 0, -1e9) => [True]
- s = torch.where(torch.ones(5, 5).tril().bool(), s, float('-inf')) => [True]
- s = s + torch.full((5, 5), float('-inf')).triu(2) => [False]
- s = s + torch.full((5, 5), -0.5).triu(1) => [False]
- s = s.masked_fill(torch.ones(5, 5).bool().tril(), float('-inf')) => [False]
"""


@pytest.mark.parametrize(("mask", "causal"), cases(MASKS))
def test_a_mask_is_causal_by_its_values(observe: Observe, mask: str, causal: str) -> None:
    (record,) = observe(BY_HAND.format(mask)).attention
    (case,) = record.cases
    assert isinstance(case, ByHand) and not record.fused and case.scale == 0.25
    assert case.scores_shape == [2, 1, 5, 5] and case.dropout == 0.0
    assert str([mask.causal for mask in case.masks]) == causal.strip()


def test_a_compiled_model_is_observed_operation_by_operation(observe: Observe) -> None:
    seen = observe("return self.a(x) + self.b(x)", "self.compile(backend='eager')")
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]
    assert next(row for row in seen.classes if row.name == "Model").calls > 0


def test_a_plain_function_is_observed_too(tmp_path: Path) -> None:
    entry = (
        "import torch\nLAYER = torch.nn.Linear(4, 4)\n"
        "def call(x):\n    m = torch.arange(4.0)\n    return LAYER(x) + m\n"
        "def build():\n    return call\ndef inputs(seed):\n    return (torch.randn(2, 4),)\n"
    )
    seen = Target.write(tmp_path / "tree", {"bench.py": entry}).observe()
    assert not seen.callable.is_module and seen.callable.line == 3
    assert any("arange" in row.operations for row in seen.constants)


def test_observing_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    target = Target.of_forward(tmp_path / "tree", "return self.layer(x)")
    with target._imported():
        observer = guest.module("observe").Observer(str(target.tree), "bench.py")
        observer.op_build()
        plain = torch.nn.Module.__call__
        before = {name: value.clone() for name, value in observer.built.state_dict().items()}
        observer.op_observe(target._draw(observer, ({},)), calls=1)
        assert all(torch.equal(value, before[name]) for name, value in observer.built.state_dict().items())
        assert torch.nn.Module.__call__ is plain


def test_what_a_change_brought_along_is_no_place(tmp_path: Path) -> None:
    init = "self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)"
    before = "from ratchet_ops.gate import gate"
    target = Target.of_forward(tmp_path / "tree", "return gate(self.a(x), self.b(x))", init, before=before)
    gate = "import torch.nn.functional as F\n\n\ndef gate(a, b):\n    return F.silu(a) * b\n"
    Target.write(target.tree, {"ratchet_ops/__init__.py": "# Ratchet: \n", "ratchet_ops/gate.py": gate})
    (record,) = target.observe().gated
    assert record.frames[0].file == "model.py", "whoever calls it is"


ATTENTION = """
import torch
from torch import nn


class {name}(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.transpose(-1, -2), -1) @ x + torch.arange(16.0)
"""


def test_functions_of_equal_code_in_two_files_are_two_places(tmp_path: Path) -> None:
    init = "self.encoder, self.decoder = Encoder(), Decoder()"
    before = "from decoder import Decoder\nfrom encoder import Encoder"
    target = Target.of_forward(tmp_path / "tree", "return self.decoder(self.encoder(x))", init, before=before)
    Target.write(target.tree, {f"{name.lower()}.py": ATTENTION.format(name=name) for name in ("Encoder", "Decoder")})
    seen = target.observe()
    for table in (seen.attention, seen.constants):
        first = [(row.frames[0].file, row.frames[0].owner, row.count) for row in table]
        assert sorted(first) == [("decoder.py", "Decoder", 1), ("encoder.py", "Encoder", 1)]


CROSS = """
class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.listed = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])

    def forward(self, x, memory):
        return self.q(x) + {}
"""


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ("self.k(memory) + self.v(memory)", [(["k", "v"], 1)]),
        ("sum(each(memory) for each in self.listed)", [(["0", "1"], 1)]),
        ("self.k(memory) + self.v(memory) + self.k(memory)", []),  # one call asks a layer twice
    ],
)
def test_layers_that_are_given_the_same_in_several_calls_of_their_parent_are_one_group(
    observe: Observe, what: str, wanted: list[tuple[list[str], int]]
) -> None:
    body = "memory = x + 1\nfor _ in range(2):\n    x = self.cross(x, memory)\nreturn x"
    seen = observe(body, "self.cross = Cross()", CROSS.format(what))
    assert [(group.names, group.count) for group in seen.linear_groups] == wanted
