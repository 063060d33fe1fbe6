"""Where Python waits for values of tensors, on whichever way, and what is made of the values that it was given."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import guest
from tests.observed import Target
from tools.observation import Observation

MODEL = """
import numpy as np
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
{body}
"""


def observe(tmp_path: Path, body: str) -> Observation:
    text = MODEL.replace("{body}", "\n".join(f"        {line}" for line in body.split("\n")))
    return Target.of_model(tmp_path / "tree", text).observe()


def reads(tmp_path: Path, body: str) -> list[tuple[str, bool]]:
    return [(row.operation, row.fixed) for row in observe(tmp_path, body).host_reads]


FROM_DATA = "n = (x.sum() > -1e9).long() + 1\n"


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        ("return x[:, :n]", "getitem"),
        ("return x[0, n]", "getitem"),
        ("return x[x > 0]", "getitem"),
        ("x[x > 0] = x[x > 0] * 2\nreturn x", "__setitem__"),
        ("return x[:, 0, 0, None] + torch.arange(n)", "arange"),
        ("return x.sum() + torch.zeros(n, 3)", "zeros"),
        ("return x.narrow(1, 0, n)", "narrow"),
        ("return x.sum() + torch.tensor([n, 1])", "tensor"),
        ("return x if 3 in x.long() else x + 1", "__contains__"),
        ("return x + float(np.asarray(x).max())", "__array__"),
        ("return x + float(x.numpy().max())", "numpy"),
        ("return x.nonzero()", "nonzero"),
        ("return torch.where(x > 0)[0]", "where"),
        ("return x.masked_select(mask=x > 0)", "masked_select"),
        ("return x.repeat_interleave(n[None].expand(2), dim=0)", "repeat_interleave"),
    ],
)
def test_a_value_of_data_that_is_read_is_listed(tmp_path: Path, body: str, operation: str) -> None:
    assert (operation, False) in reads(tmp_path, FROM_DATA + body)


@pytest.mark.parametrize(
    "body",
    [
        "return x[torch.arange(2)]",
        "x[x > 0] = 0.0\nreturn x",
        "return x.repeat_interleave(torch.tensor(2) * 1, dim=0) if False else x.view(2, -1)",
        "return torch.where(x > 0, x, 0.0)",
        "return x.cpu().to('cpu')",
        "return torch.tensor(2.0) * x.narrow(1, 0, 2)",
    ],
)
def test_what_needs_no_value_is_not(tmp_path: Path, body: str) -> None:
    assert reads(tmp_path, body) == []


FIXED = "n = torch.tensor(x.shape[1]) - 1\nreturn x[:, :n] + torch.zeros(n, 16)"


def test_a_number_of_shapes_alone_costs_a_wait_on_a_device_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reads(tmp_path / "host", FIXED) == []
    trace = guest.module("observe_trace")
    monkeypatch.setattr(trace, "on_host", lambda tensor: False)
    assert reads(tmp_path / "device", FIXED) == [("getitem", True), ("zeros", True)]


def test_what_goes_to_the_host_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = guest.module("observe_reads")
    there, here = torch.ones(3), torch.ones(3)
    monkeypatch.setattr(seen, "on_host", lambda tensor: tensor is here)
    for name, args in (("cpu", (there,)), ("to", (there, "cpu")), ("copy_", (here, there))):
        assert seen.read_of(name, args, {}, here) == [there], name
        assert seen.read_of(name, args, {"non_blocking": True}, here) == [], name
    assert seen.read_of("to", (here, "cuda"), {}, there) == []


READ = "sizes = [int(v) for v in x[0, 0, :3].tolist()]\n"


@pytest.mark.parametrize(
    "made",
    [
        "torch.tensor([abs(v) for v in sizes])",
        "torch.as_tensor(sizes)",
        "torch.asarray(sizes)",
        "torch.arange(abs(sizes[0]) + 1)",
        "torch.full((3,), sizes[0])",
        "torch.from_numpy(np.array(sizes))",
    ],
)
def test_what_is_made_of_values_of_data_depends_on_data(tmp_path: Path, made: str) -> None:
    seen = observe(tmp_path, READ + f"n = {made}\nif n.max() > 0:\n    x = x + 1\nreturn x")
    asked = [row for row in seen.host_reads if row.operation == "__bool__"]
    assert [row.fixed for row in asked] == [False] and seen.constants == []


def test_what_is_made_before_a_read_or_after_an_answer_stays_constant(tmp_path: Path) -> None:
    before = observe(tmp_path / "before", "m = torch.arange(16)\n" + READ + "return x + m + sizes[0]")
    assert any("arange" in row.operations for row in before.constants)
    after = observe(tmp_path / "after", "if x.sum() > -1e9:\n    x = x + 1\nreturn x + torch.arange(16)")
    assert any("arange" in row.operations for row in after.constants)


def test_what_a_slice_of_a_constant_holds_depends_on_where_it_ends(tmp_path: Path) -> None:
    seen = observe(tmp_path, FROM_DATA + "m = torch.arange(5)[:n] * 2\nreturn x.sum() + m")
    assert all("mul" not in row.operations for row in seen.constants)
