"""The observer says what happened, where, and what it depended on; it changes nothing and stays small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest
from tests.observed import Target

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 16
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
{body}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        {setup}

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""


def observe(tmp_path: Path, body: str, setup: str = "pass") -> dict[str, Any]:
    body = "\n".join(f"        {line}" for line in body.strip().splitlines())
    text = MODEL.replace("{body}", body).replace("{setup}", setup)
    seen = Target.of_model(tmp_path / "tree", text).told()
    assert len(json.dumps(seen)) < 1 << 20
    return seen


def lines(record: dict[str, Any]) -> list[str]:
    return [f"{f['class']}.{f['function']}:{f['line']}" for f in record["frames"]]


def test_classes_have_a_place_a_count_and_a_share(tmp_path: Path) -> None:
    seen = observe(tmp_path, "return self.a(x)")
    rows = {row["class"]: row for row in seen["classes"]}
    block = rows["Block"]
    assert (block["file"], block["count"], block["third_party"]) == ("model.py", 3, False)
    assert block["paths"] == ["blocks.0", "blocks.1", "blocks.2"]
    assert 0 < block["self_share"] <= block["inclusive_share"] <= 1
    assert rows["Linear"]["third_party"]
    assert block["plain_attributes"] == ["size"] and block["children"] == {"a": "Linear", "b": "Linear"}
    assert seen["callable"]["class"] == "Model" and seen["callable"]["outermost"][0]["line"] > 0


def test_operations_have_shares_and_what_is_left_out_too(tmp_path: Path) -> None:
    table = observe(tmp_path, "return self.a(x)")["ops"]
    assert table["rows"] and abs(sum(row["share"] for row in table["rows"]) + table["other"] - 1) < 1e-6


def test_what_is_replayed_as_a_whole_is_seen_module_by_module(tmp_path: Path) -> None:
    """As `graphed` does it: a recording is replayed, unless somebody looks."""
    seen = observe(tmp_path, "if not torch._C._len_torch_function_stack():\n    return x * 2\nreturn self.a(x)")
    assert next(row for row in seen["classes"] if row["class"] == "Linear")["inclusive_share"] > 0
    assert any("linear" in row["name"] or "addmm" in row["name"] for row in seen["ops"]["rows"])


def test_a_constant_is_reported_with_every_frame_above_it(tmp_path: Path) -> None:
    seen = observe(tmp_path, "m = torch.arange(x.shape[1])\nreturn x + m[None, :, None]")
    made = next(r for r in seen["constants"] if "arange" in r["operations"])
    assert [line.split(":")[0] for line in lines(made)][:2] == ["Block.forward", "Model.forward"]
    assert made["count"] == 3 and not made["mutated"]
    assert made["frames"][0]["plain_attributes"] == ["size"] and made["frames"][0]["module"] == "model"


@pytest.mark.parametrize(
    "body",
    [
        "return x + torch.rand(5)[None, :, None]",
        "return x + self.a.bias.cos()",
        "return x + x[0, 0].cos()",
        "m = torch.zeros(5, 16)\nm[:] = x[0]\nreturn x + m",
    ],
)
def test_what_depends_on_data_or_chance_is_no_constant(tmp_path: Path, body: str) -> None:
    used = [r for r in observe(tmp_path, body)["constants"] if set(r["operations"]) - {"zeros"}]
    assert used == []


@pytest.mark.parametrize("write", ["m.add_(1)", "torch.nn.functional.relu(m, inplace=True)", "torch.relu_(input=m)"])
def test_a_constant_written_to_after_its_use_says_so(tmp_path: Path, write: str) -> None:
    seen = observe(tmp_path, f"m = torch.ones(16)\nx = x + m\n{write}\nreturn x * m")
    assert any(r["mutated"] for r in seen["constants"])


ATTENTION = """
q = k = v = x[:, None]
s = q @ k.transpose(-2, -1) * 0.25
{mask}
return (torch.softmax(s, -1) @ v)[:, 0]"""


@pytest.mark.parametrize(
    ("mask", "causal"),
    [
        ("s = s + torch.full((5, 5), float('-inf')).triu(1)", True),
        ("s = s.masked_fill(torch.ones(5, 5).tril() == 0, -1e9)", True),
        ("s = torch.where(torch.ones(5, 5).tril().bool(), s, float('-inf'))", True),
        ("s = s + torch.full((5, 5), float('-inf')).triu(2)", False),
        ("s = s + torch.full((5, 5), -0.5).triu(1)", False),
        ("s = s.masked_fill(torch.ones(5, 5).bool().tril(), float('-inf'))", False),
    ],
)
def test_a_mask_is_causal_by_its_values(tmp_path: Path, mask: str, causal: bool) -> None:
    seen = observe(tmp_path, ATTENTION.replace("{mask}", mask))
    (record,) = seen["attention"]
    (case,) = record["cases"]
    assert not record["fused"] and record["count"] == 3
    assert case["scale"] == 0.25 and case["scores_shape"] == [2, 1, 5, 5] and case["dropout"] == 0.0
    assert [m["causal"] for m in case["masks"]] == [causal]


def test_attention_without_a_mask_or_fused_is_told_apart(tmp_path: Path) -> None:
    (by_hand,) = observe(tmp_path / "a", ATTENTION.replace("{mask}", ""))["attention"]
    assert by_hand["cases"][0]["masks"] == []
    (fused,) = observe(
        tmp_path / "b", "return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]"
    )["attention"]
    assert fused["fused"]


def test_values_that_python_reads_are_listed(tmp_path: Path) -> None:
    seen = observe(tmp_path, "return x * 2 if x.sum() > 0 else x + x.max().item()")
    assert {r["operation"] for r in seen["host_reads"]} & {"__bool__", "item"}
    assert not any(r["fixed"] for r in seen["host_reads"])
    counts = observe(tmp_path / "counts", "return x if torch.ones(3).sum() > 2 else x + 1")
    assert [(r["operation"], r["fixed"]) for r in counts["host_reads"]] == [("__bool__", True)]


def test_a_compiled_model_is_observed_operation_by_operation(tmp_path: Path) -> None:
    seen = observe(tmp_path, "return self.a(x) + self.b(x)", setup="self.compile(backend='eager')")
    assert [g["names"] for g in seen["linear_groups"]] == [["a", "b"]]
    assert next(row for row in seen["classes"] if row["class"] == "Block")["calls"] > 0


def test_a_plain_function_is_observed_too(tmp_path: Path) -> None:
    entry = (
        "import torch\nLAYER = torch.nn.Linear(4, 4)\n"
        "def call(x):\n    m = torch.arange(4.0)\n    return LAYER(x) + m\n"
        "def build():\n    return call\ndef inputs(seed):\n    return (torch.randn(2, 4),)\n"
    )
    seen = Target.write(tmp_path / "tree", {"bench.py": entry}).told()
    assert not seen["callable"]["is_module"] and seen["callable"]["line"] == 3
    assert any("arange" in r["operations"] for r in seen["constants"])


def test_observing_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    text = MODEL.replace("{body}", "        return self.a(x)").replace("{setup}", "pass")
    target = Target.of_model(tmp_path / "tree", text)
    with target._imported():
        observer = guest.module("observe").Observer(str(target.tree), "bench.py")
        observer.op_build()
        plain = torch.nn.Module.__call__
        before = {name: value.clone() for name, value in observer.built.state_dict().items()}
        observer.op_observe(target._draw(observer, ({},)), calls=1)
        assert all(torch.equal(value, before[name]) for name, value in observer.built.state_dict().items())
        assert torch.nn.Module.__call__ is plain


def test_a_model_of_many_layers_stays_within_bounds(tmp_path: Path) -> None:
    text = (
        MODEL.replace("range(3)", "range(300)").replace("{body}", "        return self.a(x)").replace("{setup}", "pass")
    )
    seen = Target.of_model(tmp_path / "tree", text).told()
    assert len(json.dumps(seen)) < 1 << 20
    assert all(len(value) <= 200 for value in seen.values() if isinstance(value, list))


def test_what_a_change_brought_along_is_no_place(tmp_path: Path) -> None:
    text = MODEL.replace("from torch import nn", "from torch import nn\nfrom ratchet_ops.gate import gate", 1)
    text = text.replace("{body}", "        return gate(self.a(x), self.b(x))").replace("{setup}", "pass")
    target = Target.of_model(tmp_path / "tree", text)
    gate = "import torch.nn.functional as F\n\n\ndef gate(a, b):\n    return F.silu(a) * b\n"
    Target.write(target.tree, {"ratchet_ops/__init__.py": "# Ratchet: \n", "ratchet_ops/gate.py": gate})
    (record,) = target.told()["gated"]
    assert record["frames"][0]["file"] == "model.py", "whoever calls it is"
