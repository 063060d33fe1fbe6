"""One unusual value costs at most the row or the table that it stands in; a note says which, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests import guest
from tests.observed import Target
from tools.observation import Observation

MODEL = """
import threading

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, lock=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        if lock:
            self.lock = threading.Lock()

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Other(Norm):
    def forward(self, other=None, x=None):
        return Norm.forward(self, x) if x is not None else other


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
        {setup}

    def forward(self, x):
{body}
"""


def observe(tmp_path: Path, body: str, setup: str = "pass") -> Observation:
    text = MODEL.replace("{setup}", setup).replace("{body}", "\n".join(f"        {line}" for line in body.split("\n")))
    told = Target.of_model(tmp_path / "tree", text).told()
    return Observation.model_validate(json.loads(json.dumps(told)))


LAYERS = "\nreturn self.a(x) + self.b(x)"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("body", "setup"),
    [
        ("x = torch.vmap(lambda row: row[1:].sin() + row[:-1])(x)", "pass"),
        ("x = torch.vmap(lambda row: row.masked_fill(row > 0, -1e9) + row)(x)", "pass"),
        ("adj = torch.eye(5).to_sparse()\nx = (adj + adj) @ x[0] + x", "pass"),
        ("x = torch.nested.nested_tensor([x[0], x[1, :3]]).to_padded_tensor(0.0)", "pass"),
        (
            "x = torch.nested.as_nested_tensor([*x], layout=torch.jagged).clone().to_padded_tensor(0.0, (2, 5, 16))",
            "pass",
        ),
        ("x = self.norm(x)", "self.norm = Norm(lock=True)"),
    ],
)
def test_what_has_no_storage_no_values_or_no_copy_is_looked_past(tmp_path: Path, body: str, setup: str) -> None:
    seen = observe(tmp_path, body + LAYERS, setup)
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]
    assert seen.notes == [] and seen.norms == []


def test_what_is_written_through_a_view_in_vmap_changes_what_it_is_a_view_of() -> None:
    trace = guest.module("observe_trace")
    shared = torch.vmap(lambda row: torch.tensor(trace._shares(row[1:], row)).expand(2) & (row[:2] == row[:2]))
    assert shared(torch.ones(3, 4)).all()
    copied = torch.vmap(lambda row: torch.tensor(trace._shares(row.clone(), row)).expand(2) & (row[:2] == row[:2]))
    assert not copied(torch.ones(3, 4)).any()


FUSED = "q = x[:, None]\nx = F.scaled_dot_product_attention(q, q, q, scale={})[:, 0]" + LAYERS
BY_HAND = "q = x[:, None]\nx = (F.softmax(q @ q.mT * {}, -1) @ q)[:, 0]" + LAYERS


@pytest.mark.parametrize(
    "body", [FUSED.format("np.float32(0.5)"), FUSED.format("torch.tensor(0.5)"), BY_HAND.format("float('inf')")]
)
def test_attention_whose_scale_is_no_plain_number_is_left_out(tmp_path: Path, body: str) -> None:
    seen = observe(tmp_path, body)
    assert seen.attention == [] and seen.notes == []
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]


def test_a_scale_that_is_a_number_is_told(tmp_path: Path) -> None:
    (fused,) = observe(tmp_path, FUSED.format("np.float64(0.5)")).attention
    assert fused.cases[0].scale == 0.5


def test_a_table_that_cannot_be_made_is_empty_and_a_note_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("nobody thought of it")

    monkeypatch.setitem(guest.module("observe").TABLES, "attention", fails)
    monkeypatch.setattr(guest.module("observe_padding"), "probe", fails)
    seen = observe(tmp_path, "return self.a(x) + self.b(x)")
    assert seen.attention == [] and seen.padding == []
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]
    assert seen.notes == [
        f"the observer tells nothing of {table}: KeyError: 'nobody thought of it'" for table in ("padding", "attention")
    ]


def test_a_norm_that_is_given_its_argument_by_name_is_found(tmp_path: Path) -> None:
    seen = observe(tmp_path, "return self.norm(x=x)", "self.norm = Norm()")
    assert [(norm.name, norm.kind) for norm in seen.norms] == [("Norm", "rms")]


def test_a_norm_that_is_given_another_than_its_first_argument_is_none(tmp_path: Path) -> None:
    assert observe(tmp_path, "return self.norm(x=x)", "self.norm = Other()").norms == []


@pytest.mark.parametrize("write", ["m ^= x[0, 0].int()", "m <<= x[0, 0].int().abs()", "m >>= x[0, 0].int().abs()"])
def test_what_was_changed_in_place_by_data_is_no_constant(tmp_path: Path, write: str) -> None:
    seen = observe(tmp_path, f"m = torch.ones(16, dtype=torch.int32)\n{write}\nm = m * 2\nreturn x + m")
    assert all("mul" not in row.operations for row in seen.constants)


def test_casts_are_no_copies(tmp_path: Path) -> None:
    seen = observe(tmp_path, "x = x.float().to(x.dtype).contiguous()\nreturn x.clone()")
    assert sorted(row.operation for row in seen.copies) == ["clone", "contiguous"]
