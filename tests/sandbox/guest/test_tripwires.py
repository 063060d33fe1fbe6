"""The tripwires tell on replaced clocks, on replaced parts of the guest and on exchanged code; and on nothing else."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch

from tests import guest

tripwires: Any = guest.module("tripwires")
digest: Any = guest.module("digest")
worker: Any = guest.module("worker")
wire: Any = guest.module("wire")


def test_nothing_has_changed_when_nothing_was_done_and_what_torch_compile_puts_beside_our_functions_is_not_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "__compiled_fn_3_62172594", lambda: None, raising=False)
    before = tripwires.snapshot()
    monkeypatch.undo()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert tripwires.changed(before) == []
    # a name that is misspelt would be watched for ever without anybody noticing
    assert [name for name, (value, _) in before.items() if value is None] == []
    assert socket.socket.send is before["socket.send"][0]


def test_what_torch_compile_replaces_when_it_is_first_imported_is_nobodys_doing() -> None:
    code = """
import sys, torch
from tests import guest
tripwires = guest.module("tripwires")
before, seed = tripwires.snapshot(), torch.manual_seed
assert "torch._dynamo" not in sys.modules
torch.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2))
assert torch.manual_seed is not seed
print(tripwires.changed(before))
torch.manual_seed = torch._disable_dynamo(lambda seed: None)
print(tripwires.changed(before))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["[]", "['torch.manual_seed']"]


@pytest.mark.parametrize(
    ("holder", "name", "told"),
    [
        (time, "perf_counter", "time.perf_counter"),
        (time, "monotonic_ns", "time.monotonic_ns"),
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.cuda.Event, "elapsed_time", "Event.elapsed_time"),
        (torch.Tensor, "contiguous", "Tensor.contiguous"),
        (hashlib, "sha256", "hashlib.sha256"),
        (digest, "_sums", "digest._sums"),
        (digest.Digest, "digits", "digest.Digest.digits"),
        (worker.Worker, "op_stage", "worker.Worker.op_stage"),
        (worker, "synchronize", "worker.synchronize"),
        (json.JSONEncoder, "iterencode", "JSONEncoder.iterencode"),
        (wire, "_to_json", "wire._to_json"),
    ],
)
def test_it_tells_what_was_replaced(holder: Any, name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tripwires.snapshot()
    monkeypatch.setattr(holder, name, lambda *_: None)
    assert told in tripwires.changed(before)


def test_it_tells_what_was_taken_away_and_that_the_code_of_a_function_was_exchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = tripwires.snapshot()
    monkeypatch.delattr(digest, "_sums")
    assert tripwires.changed(before) == ["digest._sums"]
    monkeypatch.setattr(worker.synchronize, "__code__", (lambda: None).__code__)
    assert "worker.synchronize" in tripwires.changed(before)


@pytest.mark.parametrize("module", [sys, threading])
@pytest.mark.parametrize("name", ["profile", "trace"])
def test_it_tells_who_follows_what_python_runs(module: Any, name: str) -> None:
    before, was = tripwires.snapshot(), getattr(module, f"get{name}")()
    getattr(module, f"set{name}")(lambda *_: None)
    try:
        changed = tripwires.changed(before)
    finally:
        getattr(module, f"set{name}")(was)
    assert changed == [f"{module.__name__}.set{name}"] and tripwires.changed(before) == []


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="Python 3.12 has it first")
def test_it_tells_who_watches_what_python_runs() -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    before, number = tripwires.snapshot(), next(n for n in range(6) if monitoring.get_tool(n) is None)
    monitoring.use_tool_id(number, "a candidate")
    try:
        assert tripwires.changed(before) == [f"sys.monitoring.{number}"]
    finally:
        monitoring.free_tool_id(number)
