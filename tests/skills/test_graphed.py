"""A recorded call follows its inputs and its weights, hands out results that last, and steps aside where it must."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets

graphed = assets.load("amd-kernel-optimization", "graphed")


@graphed.graphed
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(16, 16), nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.counting, self.scale = False, 1.0

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> dict[str, torch.Tensor]:
        if self.counting:
            self.seen += 1
        return {"y": self.drop(torch.relu(self.layer(x))) * self.scale + shift}


def expected(net: Any, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
    return torch.relu(torch.nn.functional.linear(x, net.layer.weight, net.layer.bias)) + shift


def recordings(net: Any) -> int:
    found = graphed._recorders.get(net)
    return 0 if found is None else sum(graph is not None for graph in found.graphs.values())


def test_on_a_cpu_the_plain_call_runs() -> None:
    net, x = Net().eval(), torch.randn(2, 16)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(net(x)["y"], expected(net, x))
    assert recordings(net) == 0
    assert list(net.state_dict()) == ["seen", "layer.weight", "layer.bias"]


@contextlib.contextmanager
def empty_capture() -> Iterator[None]:
    try:
        yield
    finally:
        warnings.warn("The CUDA Graph is empty. This usually means ...", stacklevel=1)


def test_a_recording_of_nothing_is_an_error_and_tells_what_failed_before_it() -> None:
    with pytest.raises(UserWarning, match="empty"), graphed._nothing_fails(), empty_capture():
        pass
    with pytest.raises(KeyError, match="read a value"), graphed._nothing_fails(), empty_capture():
        raise KeyError("read a value")


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((torch.ones(1), torch.ones(2)), {}),
    ((torch.ones(1),), {"y": torch.ones(2)}),
    ((), {"x": torch.ones(1), "y": torch.ones(2)}),
    ((), {"y": torch.ones(2), "x": torch.ones(1)}),
    ((torch.ones(1), 2), {"y": None}),
    (([torch.ones(1), {"of": torch.ones(2)}],), {"y": (3, "a")}),
    ((), {}),
]


def test_arguments_are_taken_apart_and_put_together_as_they_were() -> None:
    structures = []
    for args, kwargs in CALLS:
        leaves, structure = graphed.take_apart(args, kwargs)
        given = graphed.put_together(list(leaves), structure)
        assert repr((tuple(given[0]), given[1])) == repr((args, kwargs))
        structures.append(structure)
    assert all(one != other for number, one in enumerate(structures) for other in structures[:number])


def test_small_tensors_of_one_type_are_copied_at_once_where_they_are_many() -> None:
    small = [torch.randn(3, 4), torch.randn(2, 8).t(), torch.randn(1, 2).expand(5, 2), torch.empty(0, 3), torch.ones(9)]
    large, whole = torch.randn(graphed.SMALL // 4 + 1), [torch.arange(3), torch.arange(4)]
    leaves = [small[0], 7, whole[0], *small[1:], None, large, whole[1], torch.randn(2, dtype=torch.float64)]
    alone, together = graphed._at_once(leaves)
    assert [place for place, _ in alone] == [2, 9, 8, 10]
    ((places, tensors),) = together
    assert places == [0, 3, 4, 5, 6]
    assert all(one is leaves[place] for place, one in [*alone, *zip(places, tensors, strict=True)])
    few, none = graphed._at_once(leaves[:5])
    assert [place for place, _ in few] == [0, 3, 4, 2] and not none


@pytest.fixture
def net() -> Any:
    with torch.no_grad():
        yield Net().cuda().eval()


def right(net: Any, x: torch.Tensor, shift: float = 0.0) -> bool:
    return torch.allclose(net(x, shift=shift)["y"], expected(net, x, shift), atol=1e-5)


def warm(net: Any, rows: int = 2) -> Any:
    for _ in range(4):
        assert right(net, torch.randn(rows, 16, device="cuda"))
    assert recordings(net) >= 1
    return net


@pytest.mark.gpu
def test_a_replay_follows_its_inputs_and_its_results_last(net: Any) -> None:
    warm(net)
    x, y = torch.randn(2, 16, device="cuda"), torch.randn(2, 16, device="cuda")
    first = net(x)["y"]
    kept = first.clone()
    net(y)
    assert torch.equal(first, kept), "the next call may not write over what the caller holds"
    first.fill_(float("nan"))
    assert right(net, x)


@pytest.mark.gpu
def test_each_form_has_its_recording_up_to_a_bound(net: Any) -> None:
    for rows in range(1, 2 * graphed.MAX_GRAPHS):
        for _ in range(3):
            assert right(net, torch.randn(rows, 16, device="cuda"))
    assert recordings(net) == graphed.MAX_GRAPHS
    fresh = Net().cuda().eval()
    for shift in (0.0, 1.0, 0.0, 1.0, 0.0, 1.0):
        assert right(fresh, torch.randn(2, 16, device="cuda"), shift)
    assert recordings(fresh) == 2


@pytest.mark.gpu
def test_it_steps_aside_for_hooks_and_odd_inputs(net: Any) -> None:
    warm(net)
    before = recordings(net)
    base = torch.randn(4, 16, device="cuda")
    assert right(net, base[::2])
    assert right(net, base[:1].expand(2, 16))
    seen: list[int] = []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1))
    right(net, torch.randn(2, 16, device="cuda"))
    hook.remove()
    assert seen and recordings(net) == before


@pytest.mark.gpu
@pytest.mark.parametrize("inference", [False, True])
def test_a_buffer_is_written_to_once_for_each_call_and_not_for_recording_one(inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():
        net = Net().cuda().eval()  # in inference mode torch counts no writes to it
        net.counting = True
        for number in range(1, 7):
            before = graphed.version(net.seen)
            assert right(net, torch.randn(2, 16, device="cuda")) and net.seen.item() == number
            assert inference or graphed.version(net.seen) > before, "who remembers what it held has to know"
        assert recordings(net) == 1
        net.seen.fill_(100)
        net.scale = 2.0  # no recording serves any more: the call may not be made twice
        for number in range(101, 107):
            x = torch.randn(2, 16, device="cuda")
            torch.testing.assert_close(net(x)["y"], expected(net, x) * 2)
            assert net.seen.item() == number
        assert recordings(net) == 1


class Cached(nn.Module):
    """Keeps what it is given in a buffer, as a cache of keys does; `place` is where, and rises in a buffer too."""

    def __init__(self, size: int = 8, hands_out: bool = False) -> None:
        super().__init__()
        self.layer, self.hands_out = nn.Linear(4, 4), hands_out
        self.register_buffer("cache", torch.zeros(size, 4))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(len(x), device=x.device) + self.place
        self.cache[rows] = self.layer(x)
        self.place += len(x)
        return self.cache if self.hands_out else self.cache.cumsum(0)


@graphed.graphed
class RecordedCache(Cached):
    pass


def caches(**settings: Any) -> tuple[Any, Any]:
    """The same twice, the first one recorded."""
    recorded, plain = RecordedCache(**settings).cuda().eval(), Cached(**settings).cuda().eval()
    plain.load_state_dict(recorded.state_dict())
    return recorded, plain


def agree(recorded: Any, plain: Any, x: torch.Tensor) -> bool:
    same = torch.allclose(recorded(x), plain(x), atol=1e-5)
    return same and torch.allclose(recorded.cache, plain.cache, atol=1e-5) and torch.equal(recorded.place, plain.place)


@pytest.mark.gpu
def test_a_cache_in_buffers_is_that_of_the_plain_call() -> None:
    with torch.no_grad():
        recorded, plain = caches(size=18)
        state = {name: value.clone() for name, value in recorded.state_dict().items()}
        for _ in range(3):
            for rows in (8, 1, 1, 4, 1, 1, 1, 1):  # fills it to the last row: one call more would write beyond its end
                assert agree(recorded, plain, torch.randn(rows, 4, device="cuda"))
            for module in (recorded, plain):
                module.load_state_dict(state)
        assert recordings(recorded) == 3, "all forms of the inputs write to one cache"
        for module in (recorded, plain):
            module.cache = torch.ones(18, 4, device="cuda")  # another one
        assert all(agree(recorded, plain, torch.randn(2, 4, device="cuda")) for _ in range(4))


@pytest.mark.gpu
def test_a_cache_that_is_given_or_handed_out_is_the_same_memory_as_before() -> None:
    with torch.no_grad():
        recorded, plain = caches(size=16)
        assert all(agree(recorded, plain, torch.randn(2, 4, device="cuda")) for _ in range(3))
        for module in (recorded, plain):
            module.place.fill_(0)
        for _ in range(2):
            assert torch.allclose(recorded(recorded.cache[:2]), plain(plain.cache[:2]), atol=1e-5)
        assert recordings(recorded) == 1
        handing, _ = caches(hands_out=True)
        for _ in range(4):
            assert handing(torch.randn(1, 4, device="cuda")).data_ptr() == handing.cache.data_ptr()
        assert "an output lies in a buffer" in graphed._recorders.get(handing).failed


@pytest.mark.gpu
@pytest.mark.parametrize("found", ["before it is recorded", "while it is recorded"])
def test_a_call_that_waits_for_the_device_is_not_recorded(found: str) -> None:
    @graphed.graphed
    class Reading(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if found == "while it is recorded":  # this one is not told of
                torch.cuda.synchronize()
            return x * 2 if found.startswith("while") or x.sum().item() > 0 else x

    net, mode = Reading().cuda().eval(), torch.cuda.get_sync_debug_mode()
    with torch.no_grad():
        for sign in (1, 1, -1, 1, -1):
            x = torch.ones(4, device="cuda") * sign
            assert torch.equal(net(x), x * 2 if sign > 0 or found.startswith("while") else x)
    assert recordings(net) == 0 and graphed._recorders.get(net).failed
    assert torch.cuda.get_sync_debug_mode() == mode
    assert torch.randn(4, device="cuda").isfinite().all(), "random numbers after a recording that failed"
    with torch.no_grad():
        warm(Net().cuda().eval())


@pytest.mark.gpu
@pytest.mark.parametrize("computes", [True, False])
def test_a_module_without_weights_is_recorded_where_it_uses_the_device(computes: bool) -> None:
    @graphed.graphed
    class Bare(nn.Module):
        def forward(self, x: torch.Tensor, host: list[int]) -> torch.Tensor:
            return x * 2 if computes else x

    net = Bare().cuda().eval()
    with torch.no_grad():
        for x in torch.randn(4, 8, device="cuda"):
            assert torch.equal(net(x, [1]), x * 2 if computes else x)
    assert recordings(net) == computes


@pytest.mark.gpu
def test_a_part_in_training_draws_again_and_changes_without_end_are_given_up(net: Any) -> None:
    warm(net).drop.train()
    x = torch.ones(2, 16, device="cuda")
    assert len({tuple(net(x)["y"].flatten().tolist()) for _ in range(4)}) > 1
    net.drop.eval()
    for net.scale in range(1, 3 * graphed.MAX_CHANGES):
        torch.testing.assert_close(net(x)["y"], expected(net, x) * net.scale)
    assert graphed._recorders.get(net).failed and recordings(net) == 0


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second device")
def test_on_a_device_that_is_not_the_current_one_the_plain_call_runs(net: Any) -> None:
    net.to("cuda:1")
    for _ in range(5):
        x = torch.randn(2, 16, device="cuda:1")
        torch.testing.assert_close(net(x)["y"], expected(net, x))
    assert recordings(net) == 0
    with torch.cuda.device(1):
        for _ in range(5):
            x = torch.randn(2, 16, device="cuda:1")
            torch.testing.assert_close(net(x)["y"], expected(net, x))
    assert recordings(net) == 1


@pytest.mark.gpu
def test_many_inputs_and_outputs_are_each_the_right_ones_and_last() -> None:
    @graphed.graphed
    class Splitter(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values, order = torch.sort(x + y, dim=-1)
            parts = [values[:, n : n + 1] * 2 for n in range(4)]
            return values, order, order[:, places], values > 0, *parts, values.t(), values[:1].expand(3, -1)

    def draw() -> list[torch.Tensor]:
        x, y = torch.randn(2, 3, 16, device="cuda")
        return [x, y.clone(), torch.randint(0, 16, (5,), device="cuda")]

    net = Splitter().eval()
    drawn = [draw() for _ in range(6)]
    with torch.no_grad():
        made = [net(*each) for each in drawn]
        wanted = [Splitter.forward(net, *each) for each in drawn]
    assert recordings(net) == 1
    for out, right_out in zip(made, wanted, strict=True):
        assert [(t.shape, t.dtype) for t in out] == [(t.shape, t.dtype) for t in right_out]
        assert all(torch.equal(one, other) for one, other in zip(out, right_out, strict=True))
    for out in made[1:]:  # the first was a plain call, in which some are views of others
        assert len({t.untyped_storage().data_ptr() for t in out}) == len(out)


@pytest.mark.gpu
def test_compiled_modules_are_recorded_whole(net: Any) -> None:
    net.compile()
    warm(net)
    assert right(net, torch.randn(2, 16, device="cuda"))


@pytest.mark.gpu
def test_what_is_remembered_stays_out_of_the_recording_and_follows_the_inputs() -> None:
    """`test_recording.py` has how often it is computed."""
    remembered = assets.beside(graphed, "remembered").remembered

    @graphed.graphed
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.layer = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, noise: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(noise + remembered(self.encoder, seen))
            return out

    with torch.no_grad():
        policy, seen = Policy().cuda().eval(), torch.randn(2, 16, device="cuda")

        def is_right() -> bool:
            noise = torch.randn(2, 16, device="cuda")
            wanted = policy.layer(noise + policy.encoder(seen))
            return torch.allclose(policy(noise, seen), wanted, atol=1e-5)

        assert all(is_right() for _ in range(4)) and recordings(policy) == 1
        seen.add_(1)
        assert is_right()
        seen = torch.randn(2, 16, device="cuda")
        assert is_right()
        policy.encoder.weight.mul_(2)
        assert is_right() and recordings(policy) == 1
