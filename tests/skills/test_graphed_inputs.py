"""What a recording takes by value, what a call may write into, and what is left when its module is gone."""

from __future__ import annotations

import contextlib
import gc
import itertools
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets

graphed = assets.load("amd-kernel-optimization", "graphed")


def form_of(name: str, leaves: Any, structure: Any) -> Any:
    return structure, *(leaf for leaf in leaves if isinstance(leaf, bool))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """On a CPU, what records and replays is a stand-in: a replay does nothing."""
    if request.param == "cpu":
        stream = SimpleNamespace(
            device=SimpleNamespace(index=0), wait_stream=lambda other: None, synchronize=lambda: None
        )
        stand_ins: dict[str, Any] = {
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": lambda stream: contextlib.nullcontext(),
            "graph": lambda graph, **settings: contextlib.nullcontext(),
            "graph_pool_handle": lambda: 0,
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
            "current_device": lambda: 0,
            "synchronize": lambda: None,
            "get_sync_debug_mode": lambda: 0,
            "set_sync_debug_mode": lambda mode: None,
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(graphed, "_applies", lambda module: True)
        monkeypatch.setattr(graphed, "_form", form_of)
        monkeypatch.setattr(graphed, "_can_be_undone", lambda tensor: True)
        monkeypatch.setattr(graphed, "_on_host", lambda state: [])
    with torch.no_grad():
        yield request.param


@graphed.graphed
class Keeping(nn.Module):
    """Writes into what it is given from a call on, counted from 0."""

    def __init__(self, write: Any, begins: int = 0) -> None:
        super().__init__()
        self.write, self.begins = write, begins

    def forward(self, x: torch.Tensor, kept: Any) -> torch.Tensor:
        if len(CALLS) >= self.begins:
            self.write(kept, x * 2)
        CALLS.append(1)
        return x + 1


CALLS: list[int] = []
WRITES: dict[str, tuple[Any, Any]] = {
    "a list": (lambda kept, y: kept["list"].append(y), lambda kept: kept["list"][-1]),
    "in place of another": (lambda kept, y: kept.update(old=y), lambda kept: kept["old"]),
    "under a new name": (lambda kept, y: kept.update(new=y), lambda kept: kept["new"]),
}


@pytest.mark.parametrize("begins", [0, 2], ids=["from the first call on", "while it is recorded"])
@pytest.mark.parametrize(("write", "written"), WRITES.values(), ids=list(WRITES))
def test_what_a_call_writes_is_there_after_each_call(device: str, write: Any, written: Any, begins: int) -> None:
    CALLS.clear()
    module = Keeping(write, begins).eval()
    for number in range(6):
        x = torch.full((3,), float(number), device=device)
        kept: dict[str, Any] = {"list": [], "old": torch.zeros(3, device=device)}
        assert torch.equal(module(x, kept), x + 1)
        if number >= begins:
            assert torch.equal(written(kept), x * 2) and len(kept["list"]) <= 1
    assert graphed._recorders.get(module).failed


def test_a_call_that_only_reads_containers_is_recorded(device: str) -> None:
    module = Keeping(lambda kept, y: kept["list"][0] + y).eval()
    for _ in range(3):
        x, y = torch.ones(2, 3, device=device)
        module(x, {"list": [y.clone(), 3]})
    assert [type(graph).__name__ for graph in graphed._recorders.get(module).graphs.values()] == ["_Graph"]


@graphed.graphed
class Counting(nn.Module):
    """Counts its calls in a buffer, but for those that only hand it out."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor, counts: bool = True, hands_out: bool = False) -> torch.Tensor:
        CALLS.append(1)
        if counts:
            self.seen += 1
        out = x + self.seen  # a graph without work cannot be recorded
        return self.seen if hands_out else out


def test_what_a_recording_writes_to_buffers_is_undone_and_what_a_replay_writes_is_told(device: str) -> None:
    CALLS.clear()
    module, x = Counting().to(device).eval(), torch.zeros(3, device=device)
    assert torch.equal(module(x), x + 1)
    module(x)  # the stand-in of a recording runs the call that it records, and its replay does nothing
    assert len(CALLS) == 1 + graphed.WARM_UP_CALLS + 1 and torch.equal(module.seen, x + 2)
    before = module.seen._version
    module(x)
    assert module.seen._version > before and not graphed._recorders.get(module).failed
    module(module.seen)
    assert len(CALLS) == 2 + graphed.WARM_UP_CALLS + 1, "a replay would read what it writes from a copy"


@pytest.mark.parametrize("order", [[(True, True)], [(True, False), (False, True)], [(False, True), (True, False)]])
def test_a_buffer_that_is_written_to_is_handed_out_itself(device: str, order: Any) -> None:
    """Whether the call that writes to it hands it out, or another one, and whichever comes first."""
    module, x = Counting().to(device).eval(), torch.zeros(3, device=device)
    graphed.given_up.clear()
    for counts, hands_out in order:
        for _ in range(3):
            module(x, counts=counts, hands_out=hands_out)
    out = module(x, counts=False, hands_out=True)
    assert out.data_ptr() == module.seen.data_ptr()
    assert (
        graphed.given_up
        == [graphed._recorders.get(module).failed]
        == ["an output lies in a buffer that calls write to"]
    )


@graphed.graphed
class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CALLS.append(1)
        if len(CALLS) == 1 + graphed.WARM_UP_CALLS:
            raise RuntimeError("it waits\nfor much")
        return torch.nn.functional.relu(x)


def test_what_a_recording_fails_of_is_told_with_its_place(device: str) -> None:
    CALLS.clear()
    module, x = Failing().eval(), torch.ones(3, device=device)
    assert all(torch.equal(module(x), x) for _ in range(4))
    line = Failing.forward.__code__.co_firstlineno + 3
    assert graphed._recorders.get(module).failed == f"RuntimeError: it waits (test_graphed_inputs.py:{line})"


def test_only_the_first_reasons_are_kept(device: str) -> None:
    graphed.given_up.clear()
    for _ in range(2 * graphed.MOST_REASONS):
        module = Keeping(lambda kept, y: kept["list"].append(y)).eval()
        module(torch.ones(3, device=device), {"list": []})
    assert graphed.given_up == ["a call writes to what it is given"] * graphed.MOST_REASONS


SIZES, STRIDES = list(itertools.product((1, 2, 3), repeat=3)), list(itertools.product((0, 1, 2, 3, 4, 6, 9), repeat=3))


def test_dense_is_what_fills_its_memory_and_each_place_once() -> None:
    memory, found = torch.arange(100), set[bool]()
    for shape, strides in itertools.product(SIZES, STRIDES):
        tensor = memory.as_strided(shape, strides)
        dense = sorted(tensor.flatten().tolist()) == list(range(tensor.numel()))
        assert graphed._is_dense(tensor) is dense
        found.add(dense)
        if dense:
            assert torch.equal(graphed._own(tensor), tensor)
    assert found == {False, True} and not graphed._is_dense(memory.as_strided((2, 2), (3, 0)))


@graphed.graphed
class Settling(nn.Module):
    """Its weight is moved in its third call, the first one that a recording makes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CALLS.append(1)
        if len(CALLS) == 3:
            self.weight.data = self.weight.data.clone()
        return x * self.weight


def test_weights_that_settle_while_it_is_recorded_are_recorded_after_that(device: str) -> None:
    CALLS.clear()
    module, x = Settling().to(device).eval(), torch.ones(4, device=device)
    for _ in range(5):
        assert torch.equal(module(x), x)
    recorder = graphed._recorders.get(module)
    assert not recorder.failed and [graph is not None for graph in recorder.graphs.values()] == [True]


@graphed.graphed
class Scaled(nn.Module):
    """Its scale is a tensor that stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), torch.tensor(2.0)

    def forward(self, x: torch.Tensor, divisor: float = 1.0) -> torch.Tensor:
        return self.layer(x) * self.scale / torch.full((), divisor, device=x.device)


def recorded(module: Any, *args: Any) -> Any:
    """The result of a replay."""
    with torch.no_grad():
        for _ in range(3):
            result = module(*args)
    assert graphed._recorders.get(module).graphs
    return result


@pytest.mark.parametrize("strict", [False, True], ids=["traced", "by dynamo"])
def test_an_export_is_not_recorded(monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    """Nor looked at: of the two ways, only one tells as compiling does."""
    called: list[object] = []
    monkeypatch.setattr(graphed, "is_initialized", lambda: True)
    monkeypatch.setattr(graphed, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(graphed._Recorder, "call", lambda self, name, module, *call: called.append(module))
    module, given = Scaled().eval(), (torch.ones(2, 4),)
    with torch.no_grad():
        torch.export.export(nn.Sequential(module), given, strict=strict)
        assert not called
        module(*given)
    assert called, "outside of an export it would be"


@pytest.mark.gpu
def test_a_tensor_on_the_cpu_is_followed() -> None:
    module, x = Scaled().cuda().eval(), torch.randn(2, 4, device="cuda")
    for scale in (2.0, 3.0, 0.5):
        module.scale.fill_(scale)
        result = recorded(module, x)
        torch.testing.assert_close(result, module.layer(x).detach() * scale)
    with torch.no_grad():
        module.scale.fill_(7.0)
        torch.testing.assert_close(module(x), module.layer(x) * 7.0)


@pytest.mark.gpu
def test_zero_is_recorded_for_each_sign() -> None:
    module, x = Scaled().cuda().eval(), torch.randn(2, 4, device="cuda")
    positive, negative = recorded(module, x, 0.0), recorded(module, x, -0.0)
    assert torch.equal(positive, -negative) and positive.isinf().all()


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_module_that_is_gone_takes_its_recordings_with_it(compiled: bool) -> None:
    module: Any = Scaled().cuda().eval()
    if compiled:
        module.compile()  # from where on it leads back to itself
    recorded(module, torch.randn(2, 4, device="cuda"))
    gone = weakref.ref(module), weakref.ref(module.layer.weight), weakref.ref(graphed._recorders.get(module))
    del module
    if compiled:
        torch.compiler.reset()
        gc.collect()
    assert [each() for each in gone] == [None, None, None]
