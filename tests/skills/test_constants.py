"""`constant` keeps what shapes decide, follows everything else, and never hands out what was changed."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests import assets


@pytest.fixture
def constants() -> Any:
    torch._dynamo.reset()
    return assets.load("amd-kernel-optimization", "constants")


class Build:
    """A build function that counts how often it ran."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, n: Any, device: Any = None, dtype: Any = None) -> torch.Tensor:
        self.calls += 1
        return torch.arange(n, device=device, dtype=dtype)


def kept(constants: Any) -> int:
    return len(vars(constants._values))


def test_it_builds_once_for_each_key(constants: Any) -> None:
    build = Build()
    first = constants.constant(build, 4, torch.device("cpu"), torch.float32)
    assert constants.constant(build, 4, torch.device("cpu"), torch.float32) is first
    assert constants.constant(build, 4, torch.device("cpu"), torch.float64).dtype == torch.float64
    assert constants.constant(build, 5, torch.device("meta"), torch.float32).device.type == "meta"
    assert build.calls == 3


def test_numbers_of_another_type_or_sign_and_defaults_of_torch_belong_to_the_key(constants: Any) -> None:
    assert [constants.constant(torch.arange, n).dtype for n in (3, 3.0)] == [torch.int64, torch.float32]

    def inverse(value: float) -> torch.Tensor:
        return 1 / torch.tensor(value)

    assert constants.constant(inverse, 0.0) > 0 > constants.constant(inverse, -0.0)
    torch.set_default_dtype(torch.float64)
    try:
        assert constants.constant(torch.arange, 3.0).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert constants.constant(torch.arange, 3).device.type == "meta"
        with torch.device("cpu"):
            assert constants.constant(torch.arange, 3).device.type == "cpu"


def test_whole_numbers_are_kept_like_tensors_and_other_results_are_not(constants: Any) -> None:
    built: list[float] = []

    def build(value: float) -> float:
        built.append(value)
        return value

    for value, calls in ((3, 1), (0.5, 4)):
        built.clear()
        assert [constants.constant(build, value) for _ in range(3)] == [value] * 3
        assert len(built) == calls, "what is neither is built by each call"


def test_a_result_changed_in_place_is_given_up(constants: Any) -> None:
    build = Build()
    for _ in range(2):
        constants.constant(build, 3).add_(1)
        assert constants.constant(build, 3).tolist() == [0, 1, 2]


def test_what_is_built_is_waited_for_once(constants: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(constants, "wait_for", waited.append)

    def build(n: int) -> tuple[torch.Tensor, int, torch.Tensor]:
        return torch.ones(n), n, torch.zeros(n)

    for _ in range(3):
        built = constants.constant(build, 3)
    assert [list(map(id, tensors)) for tensors in waited] == [[id(built[0]), id(built[2])]]


def test_it_keeps_a_bounded_number(constants: Any) -> None:
    build = Build()
    for n in range(100):
        assert constants.constant(build, n).numel() == n
    assert kept(constants) == constants.MAX_KEYS
    constants.constant(build, 0)
    assert build.calls == 100, "the first ones are still kept"


def test_nothing_is_kept_of_tensors_and_from_where_operations_mean_something_else(constants: Any) -> None:
    n = torch.tensor(3)
    for size in (3, 4):
        assert constants.constant(lambda size: torch.ones(int(size)), n).numel() == size
        n += 1
    with FakeTensorMode():
        constants.constant(torch.arange, 3)
    torch.func.vmap(lambda x: x + constants.constant(torch.arange, 3))(torch.ones(2, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        constants.constant(lambda n: torch.ones(n, n) @ torch.ones(n, n), 3)
    traced = torch.jit.trace(lambda x: x * constants.constant(Build(), 3), torch.ones(3), check_trace=False)
    assert kept(constants) == 0 and traced(torch.full((3,), 2.0)).tolist() == [0, 2, 4]
    assert type(constants.constant(torch.arange, 3)) is torch.Tensor


def test_built_in_inference_mode_it_can_be_trained_with_later(constants: Any) -> None:
    with torch.inference_mode():
        made = constants.constant(torch.arange, 3.0)
    weight = nn.Parameter(torch.ones(3))
    (weight * constants.constant(torch.arange, 3.0)).sum().backward()
    assert weight.grad is not None and weight.grad.equal(made)


def table(n: int, device: Any, dtype: Any) -> torch.Tensor:
    return torch.arange(n, device=device, dtype=dtype) + 1


def ones(n: int) -> torch.Tensor:
    return torch.ones(n)


def graphs_of(constants: Any, sizes: list[int], dynamic: bool | None = None) -> list[Any]:
    """What is compiled for calls of these sizes, each of which gives what it should, in one graph."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def call(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x * constants.constant(table, x.shape[1], x.device, x.dtype) + constants.constant(ones, x.shape[1])
        return x

    compiled = torch.compile(call, backend=backend, fullgraph=True, dynamic=dynamic)
    for n in sizes:
        x = torch.randn(2, n)
        tables = table(n, x.device, x.dtype)
        assert torch.allclose(compiled(x), (x * tables + 1) * tables + 1)
    return graphs


@pytest.mark.parametrize(("dynamic", "inline"), [(False, [False] * 3), (None, [False, True]), (True, [True])])
def test_compiled_code_reads_what_is_kept_for_a_size_and_builds_inline_for_any(
    constants: Any, dynamic: bool | None, inline: list[bool]
) -> None:
    graphs = graphs_of(constants, [3, 3, 4, 3, 4, 5], dynamic)
    assert ["arange" in str(graph.graph) for graph in graphs] == inline


def test_ever_more_shapes_end_in_graphs_that_build_inline(constants: Any) -> None:
    graphs = graphs_of(constants, [*range(2, 9)], dynamic=False)
    assert ["arange" in str(graph.graph) for graph in graphs] == [False] * constants.MAX_KEYS + [True] * 3


def test_code_compiled_for_what_is_kept_stays_when_no_more_is_kept(constants: Any) -> None:
    sizes = [*range(2, 3 + constants.MAX_KEYS)]
    assert len(graphs_of(constants, sizes * 2, dynamic=False)) == len(sizes), "nothing was compiled again"


def test_threads_that_build_at_once_get_their_own(constants: Any) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(200):
            both = threading.Barrier(2)

            def build(n: int, both: threading.Barrier = both) -> None:
                both.wait()
                constants.constant(ones, n)

            sizes = (3 + 2 * number, 4 + 2 * number)
            constants._known.clear()
            threads = [threading.Thread(target=build, args=(n,)) for n in sizes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [len(constants.constant(ones, n)) for n in sizes] == [*sizes]
    finally:
        sys.setswitchinterval(before)
