"""`without_padding` cuts off what the mask excludes in every row, and nothing where it cannot know."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets


@pytest.fixture
def without_padding() -> Any:
    torch._dynamo.reset()
    return assets.load("amd-kernel-optimization", "padding").without_padding


@pytest.fixture
def given(without_padding: Any) -> Callable[..., tuple[Any, ...]]:
    """What a module gets of a mask and other arguments."""

    def called(mask: Any, *others: Any, padding: Any = 0) -> tuple[Any, ...]:
        @without_padding("mask", "a", "b", "c", mask="mask", padding=padding)
        class Given(nn.Module):
            def forward(self, mask: Any, a: Any = None, b: Any = None, c: Any = None) -> tuple[Any, ...]:
                return mask, a, b, c

        found = Given()(mask, *others)
        names = dict(zip("abc", others, strict=False))
        for left, same in zip(found, Given()(mask=mask, **names), strict=True):
            assert same is left or torch.equal(same, left)
        return found[: 1 + len(others)]  # type: ignore[no-any-return]

    return called


def mean_of(without_padding: Any) -> Any:
    @without_padding("x", "mask", mask="mask")
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.part = nn.Parameter(torch.ones(())), nn.Identity()

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            x = self.part(x)
            self.met = x.shape[1]
            return self.scale * (x * mask).sum(1) / mask.sum(1)

    return Mean


def mask_of(*lengths: int, width: int = 64) -> torch.Tensor:
    return (torch.arange(width) < torch.tensor(lengths)[:, None]).long()


@pytest.mark.parametrize(("lengths", "left"), [((3, 20), 24), ((8, 16), 16), ((1, 1), 8), ((64, 2), 64), ((0, 0), 64)])
def test_the_longest_row_decides(given: Any, lengths: tuple[int, ...], left: int) -> None:
    mask, x = mask_of(*lengths), torch.randn(2, 64, 4)
    shorter, cut = given(mask, x)
    assert torch.equal(shorter, mask[:, :left]) and torch.equal(cut, x[:, :left])
    assert shorter.is_contiguous() and cut.is_contiguous()
    one, cut = given(mask_of(max(lengths)), x)
    assert one.shape == (1, left) and torch.equal(cut, x[:, :left]), "one mask for all rows"


def test_what_has_other_positions_is_left_as_it_is(given: Any) -> None:
    mask, table = mask_of(5, 9), torch.randn(32, 8)
    found, other, positions, again = given(mask, table, torch.arange(64)[None], mask)
    assert other is table and positions.shape == (1, 16) and found.shape == again.shape == (2, 16)
    assert given(mask, None, positions)[1] is None and given(mask, None)[0].shape == (2, 16)


def test_padding_may_be_any_value(given: Any) -> None:
    excluded = mask_of(5, 9) == 0
    added = torch.where(excluded, float("-inf"), 0.0)
    for mask, padding in ((~excluded, False), ((~excluded).float(), 0.0), (excluded, True), (added, float("-inf"))):
        assert given(mask, padding=padding)[0].shape == (2, 16)


@pytest.mark.parametrize("mask", [None, torch.ones(2, 3, 4), torch.ones(0, 4), torch.ones(2, 64, device="meta")])
def test_where_it_cannot_know_and_where_a_row_keeps_nothing_nothing_is_cut_off(given: Any, mask: Any) -> None:
    x = torch.randn(2, 64)
    assert given(mask, x)[1] is x
    mask, x = mask_of(3, 0, 20), torch.randn(3, 64)
    assert given(mask, x)[1] is x, "what is averaged or attended to over nothing depends on how much there is"


@pytest.mark.parametrize("padding", [0, False, 0.0])
def test_a_mask_of_another_kind_means_something_else(given: Any, padding: Any) -> None:
    x, keeps = torch.randn(2, 64), mask_of(60, 50).flip(1)
    added = torch.where(keeps == 0, float("-inf"), 0.0)  # keeps where it is 0
    assert given(added, x, padding=padding)[1] is x
    others = {int: (keeps.bool(), keeps.float()), bool: (keeps, keeps.float()), float: (keeps, keeps.bool())}
    for mask in others[type(padding)]:
        assert given(mask.flip(1), x, padding=padding)[1] is x


def test_what_was_not_there_before_keeps_everything(without_padding: Any) -> None:
    @without_padding("x", "mask", mask="mask")
    class Tagger(nn.Module):
        def forward(self, x: Any, mask: Any, kinds: Any = None, whole: bool = False) -> torch.Tensor:
            states: torch.Tensor = x if kinds is None else x + kinds
            return states if whole else (states * mask).sum(1)

    model, x, mask = Tagger(), torch.randn(2, 64), mask_of(3, 20)
    torch.testing.assert_close(model(x, mask, torch.ones(2, 64)), ((x + 1) * mask).sum(1))
    assert model(x, mask, whole=True) is x and model(x, mask, None, True) is x
    assert model(x, mask.expand(2, 64), torch.zeros(2, 1), False).shape == (2,)
    with pytest.raises(RuntimeError):
        model(x, mask[:, :8])


def test_under_modes_and_transforms_everything_is_given(without_padding: Any) -> None:
    mean, (xs, masks) = mean_of(without_padding)(), (torch.randn(5, 2, 64), torch.stack([mask_of(3, 20)] * 5))
    with torch.no_grad():
        each = torch.vmap(mean)(xs, masks)
        torch.testing.assert_close(each, torch.stack([mean(x, m) for x, m in zip(xs, masks, strict=True)]))


def test_a_gap_and_padding_in_front_stay(given: Any) -> None:
    mask = mask_of(20, 24).flip(1)
    assert given(mask)[0] is mask
    gap = mask_of(20, 24)
    gap[:, 5:9] = 0
    assert given(gap)[0].shape == (2, 24)


def test_what_might_see_it_gets_everything(without_padding: Any) -> None:
    mean = mean_of(without_padding)
    x, mask = torch.randn(2, 64), mask_of(3, 20)

    class More(mean):  # type: ignore[misc, valid-type]
        pass

    hooked, inside, own, plain = mean(), mean(), mean(), mean()
    assert inside(x, mask).shape == (2,) and inside.met == 24
    hooked.register_forward_pre_hook(lambda module, args: None)
    inside.part.register_forward_hook(lambda module, args, out: None)
    own.forward = own.forward  # of this module alone
    results = [model(x, mask) for model in (plain, More(), hooked, inside, own)]
    assert plain.met == 24
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])
    other = More()
    other(x, mask)
    assert other.met == hooked.met == inside.met == 64


def test_hooks_and_parts_that_come_and_go_are_looked_at(without_padding: Any) -> None:
    mean, x, mask = mean_of(without_padding)(), torch.randn(2, 64), mask_of(3, 20)

    def hooked() -> nn.Module:
        part = nn.Sequential(nn.Identity())
        part[0].register_forward_hook(lambda module, args, out: None)
        return part

    def met() -> int:
        mean(x, mask)
        return int(mean.met)

    assert met() == 24
    hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda module, args: None)
    try:
        assert met() == 64
    finally:
        hook.remove()
    assert met() == 24
    mean.part = hooked()
    assert met() == 64
    mean.part = nn.Sequential(nn.Identity())
    assert met() == 24
    mean.part.append(hooked())
    assert met() == 64
    del mean.part[1]
    mean.more = None
    assert met() == 24


def test_a_hook_of_the_module_itself_does_not_keep_it(without_padding: Any) -> None:
    mean: Any = mean_of(without_padding)()
    mean(torch.randn(2, 64), mask_of(3, 20))
    mean.part.register_forward_hook(mean._get_name)
    gone = weakref.ref(mean)
    del mean
    gc.collect()
    assert gone() is None


def test_what_follows_is_compiled_once_for_all_lengths(without_padding: Any) -> None:
    graphs = []

    def noting(graph: Any, inputs: Any) -> Any:
        graphs.append([node.name for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    model, plain = mean_of(without_padding)(), mean_of(lambda *names, **more: lambda cls: cls)()
    model.compile(backend=noting, fullgraph=True)
    for longest, left in ((20, 24), (126, 128), (7, 8)):
        x, mask = torch.randn(2, 512), mask_of(3, longest, width=512)
        torch.testing.assert_close(model(x, mask), plain(x, mask))
        assert model.met == left
    assert graphs == [["mul", "mul_1", "truediv"]]


def test_code_around_it_can_be_compiled_and_exported(without_padding: Any) -> None:
    model, x, mask = mean_of(without_padding)(), torch.randn(2, 64), mask_of(3, 20)
    exported = torch.export.export(model, (x, mask)).module()
    with torch.no_grad():
        for around in (exported, torch.compile(lambda *given: model(*given), backend="eager")):
            for lengths in ((3, 20), (8, 40), (64, 1)):
                x, mask = torch.randn(2, 64), mask_of(*lengths)
                torch.testing.assert_close(around(x, mask), (x * mask).sum(1) / mask.sum(1))


@pytest.mark.gpu
def test_compiled_and_recorded_it_cuts_off_as_much() -> None:
    asset = assets.load("amd-kernel-optimization", "padding")
    graphed = assets.beside(asset, "graphed").graphed

    @asset.without_padding("x", "mask", mask="mask")
    @graphed
    class Sums(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x * mask).sum(1), torch.ones_like(x)

    model = Sums().cuda().eval()
    model.compile()
    with torch.no_grad():
        for longest, left in ((20, 24), (126, 128), (400, 400)) * 3:
            mask, x = mask_of(3, longest, width=512).cuda(), torch.randn(2, 512, device="cuda")
            sums, kept = model(x, mask)
            assert kept.shape == (2, left)
            torch.testing.assert_close(sums, (x * mask).sum(1))
    recorder = assets.beside(asset, "graphed")._recorders.get(model)
    assert len(recorder.graphs) == 3 and all(recorder.graphs.values()) and not recorder.failed
