"""Where Python waits for values of tensors, on whichever way, and what is made of the values that it was given."""

from __future__ import annotations

import pytest
import torch

from tests import guest
from tests.observed import cases
from tests.sandbox.guest.conftest import Observe
from tools.observation import Observation

FROM_DATA = "n = (x.sum() > -1e9).long() + 1\n"
READ = """
- return x[:, :n] => getitem
- return x[0, n] => getitem
- return x[x > 0] => getitem
- x[x > 0] = x[x > 0] * 2; return x => __setitem__
- return x[:, 0, 0, None] + torch.arange(n) => arange
- return x.sum() + torch.zeros(n, 3) => zeros
- return x.narrow(1, 0, n) => narrow
- return x.sum() + torch.tensor([n, 1]) => tensor
- return x if 3 in x.long() else x + 1 => __contains__
- return x * 2 if x.sum() > 0 else x => __bool__
- return x + x.max().item() => item
- return x + float(np.asarray(x).max()) => __array__
- return x + float(x.numpy().max()) => numpy
- return x.nonzero() => nonzero
- return torch.where(x > 0)[0] => where
- return x.masked_select(mask=x > 0) => masked_select
- return x.repeat_interleave(n[None].expand(2), dim=0) => repeat_interleave
"""
NOT_READ = """
- return x[torch.arange(2)]
- x[x > 0] = 0.0; return x
- return torch.where(x > 0, x, 0.0)
- return x.cpu().to('cpu')
- return torch.tensor(2.0) * x.narrow(1, 0, 2)
"""
NUMPY = "import numpy as np"


def reads(seen: Observation) -> list[tuple[str, bool]]:
    return [(row.operation, row.fixed) for row in seen.host_reads]


@pytest.mark.parametrize(("body", "operation"), cases(READ))
def test_a_value_of_data_that_is_read_is_listed(observe: Observe, body: str, operation: str) -> None:
    assert (operation.strip(), False) in reads(observe(FROM_DATA + body, before=NUMPY))


@pytest.mark.parametrize("body", cases(NOT_READ))
def test_what_needs_no_value_is_not(observe: Observe, body: str) -> None:
    assert reads(observe(body)) == []


def test_a_number_of_shapes_alone_costs_a_wait_on_a_device_only(
    observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = "n = torch.tensor(x.shape[1]) - 1\nreturn x[:, :n] + torch.zeros(n, 16)"
    assert reads(observe(fixed)) == []
    assert reads(observe("return x if torch.ones(3).sum() > 2 else x + 1")) == [("__bool__", True)]
    monkeypatch.setattr(guest.module("observe_trace"), "on_host", lambda tensor: False)
    assert reads(observe(fixed)) == [("getitem", True), ("zeros", True)]


def test_what_goes_to_the_host_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = guest.module("observe_reads")
    there, here = torch.ones(3), torch.ones(3)
    monkeypatch.setattr(seen, "on_host", lambda tensor: tensor is here)
    for name, args in (("cpu", (there,)), ("to", (there, "cpu")), ("copy_", (here, there))):
        assert seen.read_of(name, args, {}, here) == [there], name
        assert seen.read_of(name, args, {"non_blocking": True}, here) == [], name
    assert seen.read_of("to", (here, "cuda"), {}, there) == []


THERE = "there = torch.zeros(2, 5, 16, device='meta')\n"
SENT = """
- torch.arange(3).float().to(device="meta") => to True
- torch.arange(3).to(there.device) => to True
- torch.arange(3).type_as(there) => type_as True
- torch.tensor([1, 2], device="meta") => tensor True
- there.new_tensor([1, 2]) => new_tensor True
- torch.as_tensor(torch.arange(3), device="meta") => as_tensor True
- there[:, torch.arange(2)] => getitem True
- there[:, torch.arange(2)] = 1.0 => __setitem__ True
- there[0] = torch.ones(5, 16) => __setitem__ True
- there.copy_(torch.ones(16)) => copy_ True
- there.copy_(x) => copy_ False
- x.to("meta") => to False
- torch.rand(3).to("meta") => to False
- self.a.weight.to("meta") => to False
"""
NOT_SENT = """
- torch.arange(3, device="meta")
- there.to(torch.float64)
- there[:, :2] + there.new_zeros(16)
- there * torch.tensor(2.0)
- there[:, torch.tensor(1)]
- torch.zeros(2, 5)[torch.arange(2)]
- torch.as_tensor([1, 2])
- x.copy_(x)
"""


@pytest.mark.parametrize(("line", "wanted"), cases(SENT))
def test_what_goes_from_the_host_to_a_device_is_listed(observe: Observe, line: str, wanted: str) -> None:
    (row,) = observe(f"{THERE}{line}\nreturn x").host_copies
    assert f"{row.operation} {row.fixed}" == wanted.strip() and row.frames[0].function == "forward"


@pytest.mark.parametrize("line", cases(NOT_SENT))
def test_what_stays_where_it_is_or_is_handed_over_as_a_number_is_not(observe: Observe, line: str) -> None:
    assert observe(f"{THERE}{line}\nreturn x").host_copies == []


SIZES = "sizes = [int(v) for v in x[0, 0, :3].tolist()]\n"
MADE = """
- torch.tensor([abs(v) for v in sizes])
- torch.as_tensor(sizes)
- torch.asarray(sizes)
- torch.arange(abs(sizes[0]) + 1)
- torch.full((3,), sizes[0])
- torch.from_numpy(np.array(sizes))
"""


@pytest.mark.parametrize("made", cases(MADE))
def test_what_is_made_of_values_of_data_depends_on_data(observe: Observe, made: str) -> None:
    seen = observe(SIZES + f"n = {made}\nif n.max() > 0:\n    x = x + 1\nreturn x", before=NUMPY)
    asked = [row for row in seen.host_reads if row.operation == "__bool__"]
    assert [row.fixed for row in asked] == [False] and seen.constants == []


@pytest.mark.parametrize(
    "body",
    [
        "m = torch.arange(16)\n" + SIZES + "return x + m + sizes[0]",
        "if x.sum() > -1e9:\n    x = x + 1\nreturn x + torch.arange(16)",
    ],
    ids=["before a read", "after an answer"],
)
def test_what_is_made_before_a_read_or_after_an_answer_stays_constant(observe: Observe, body: str) -> None:
    assert any("arange" in row.operations for row in observe(body).constants)


def test_what_a_slice_of_a_constant_holds_depends_on_where_it_ends(observe: Observe) -> None:
    seen = observe(FROM_DATA + "m = torch.arange(5)[:n] * 2\nreturn x.sum() + m")
    assert all("mul" not in row.operations for row in seen.constants)
