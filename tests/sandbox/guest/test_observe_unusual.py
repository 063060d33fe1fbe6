"""One unusual value costs at most the row or the table that it stands in; a note says which, and why."""

from __future__ import annotations

import pytest
import torch

from tests import guest
from tests.observed import cases
from tests.sandbox.guest.conftest import Observe

NORM = """
import threading
import numpy as np

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
"""
LAYERS = "\nreturn self.a(x) + self.b(x)"
LOOKED_PAST = """
- x = torch.vmap(lambda row: row[1:].sin() + row[:-1])(x)
- x = torch.vmap(lambda row: row.masked_fill(row > 0, -1e9) + row)(x)
- adj = torch.eye(5).to_sparse(); x = (adj + adj) @ x[0] + x
- x = torch.nested.nested_tensor([x[0], x[1, :3]]).to_padded_tensor(0.0)
- x = torch.nested.as_nested_tensor([*x], layout=torch.jagged).clone().to_padded_tensor(0.0, (2, 5, 16))
- x = self.norm(x)
"""


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("body", cases(LOOKED_PAST))
def test_what_has_no_storage_no_values_or_no_copy_is_looked_past(observe: Observe, body: str) -> None:
    seen = observe(body + LAYERS, "self.norm = Norm(lock=True)", NORM)
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]
    assert seen.notes == [] and seen.norms == []


def test_what_is_written_through_a_view_in_vmap_changes_what_it_is_a_view_of() -> None:
    shares = guest.module("observe_trace")._shares

    def told(row: torch.Tensor) -> torch.Tensor:
        return torch.tensor([shares(row[1:], row), shares(row.clone(), row)]) & (row[:2] == row[:2])

    assert torch.vmap(told)(torch.ones(3, 4)).tolist() == [[True, False]] * 3


FUSED = "q = x[:, None]\nx = F.scaled_dot_product_attention(q, q, q, scale={})[:, 0]" + LAYERS
BY_HAND = "q = x[:, None]\nx = (F.softmax(q @ q.mT * {}, -1) @ q)[:, 0]" + LAYERS


@pytest.mark.parametrize(
    "body", [FUSED.format("np.float32(0.5)"), FUSED.format("torch.tensor(0.5)"), BY_HAND.format("float('inf')")]
)
def test_attention_whose_scale_is_no_plain_number_is_left_out(observe: Observe, body: str) -> None:
    seen = observe(body, before=NORM)
    assert seen.attention == [] and seen.notes == []
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]


def test_a_scale_that_is_a_number_is_told(observe: Observe) -> None:
    (found,) = observe(FUSED.format("np.float64(0.5)"), before=NORM).attention
    assert found.fused and found.cases[0].scale == 0.5


def test_a_table_that_cannot_be_made_is_empty_and_a_note_says_why(
    observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("nobody thought of it")

    monkeypatch.setitem(guest.module("observe").TABLES, "attention", fails)
    monkeypatch.setattr(guest.module("observe_padding"), "probe", fails)
    seen = observe("return self.a(x) + self.b(x)")
    assert seen.attention == [] and seen.padding == []
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]
    assert seen.notes == [
        f"the observer tells nothing of {table}: KeyError: 'nobody thought of it'" for table in ("padding", "attention")
    ]


@pytest.mark.parametrize(("made", "found"), [("Norm", [("Norm", "rms")]), ("Other", [])])
def test_a_norm_is_found_where_its_first_argument_is_given_by_name(
    observe: Observe, made: str, found: list[tuple[str, str]]
) -> None:
    seen = observe("return self.norm(x=x)", f"self.norm = {made}()", NORM)
    assert [(norm.name, norm.kind) for norm in seen.norms] == found


def test_casts_are_no_copies(observe: Observe) -> None:
    seen = observe("x = x.float().to(x.dtype).contiguous()\nreturn x.clone()")
    assert sorted(row.operation for row in seen.copies) == ["clone", "contiguous"]
