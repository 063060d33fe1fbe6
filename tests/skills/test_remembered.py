"""`remembered` gives what the module would give, whatever was changed since, and computes it once where nothing was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests import assets


class Counting(nn.Module):
    """Counts how often it ran."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(drop)
        self.more, self.bare = nn.Sequential(), nn.Linear(8, 8, bias=False)
        self.register_module("maybe", None)
        self.scale, self.runs = 2.0, []  # type: ignore[var-annotated]

    def forward(self, x: torch.Tensor, shift: float = 0.0, mask: Any = None) -> torch.Tensor:
        self.runs.append(1)
        out: torch.Tensor = self.bare(self.more(self.drop(self.norm(self.layer(x))))) * self.scale + shift
        out = out if self.maybe is None else self.maybe(out)
        return out if mask is None else out * mask


@pytest.fixture
def remembered() -> Any:
    torch._dynamo.reset()
    return assets.load("amd-kernel-optimization", "remembered").remembered


@pytest.fixture
def module() -> Counting:
    torch.manual_seed(0)
    return Counting().eval()


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


def same(remembered: Any, module: Counting, *args: Any, **kwargs: Any) -> int:
    """How often the module ran for a call that gave what it should."""
    runs = len(module.runs)
    out = remembered(module, *args, **kwargs)
    ran = len(module.runs) - runs
    torch.testing.assert_close(out, module(*args, **kwargs), rtol=0, atol=0)
    return ran


def test_the_same_input_is_computed_once(remembered: Any, module: Counting) -> None:
    x = torch.randn(4, 8)
    assert [same(remembered, module, x) for _ in range(3)] == [1, 0, 0]
    assert same(remembered, module, x.clone()) == 0, "another tensor of the same values"
    assert same(remembered, module, x, shift=1.0) == 1
    assert same(remembered, module, x, mask=torch.ones(8)) == 1
    assert same(remembered, module, x, mask=torch.zeros(8)) == 1


def test_comparing_is_no_part_of_the_call(remembered: Any, module: Counting) -> None:
    class Seeing(TorchFunctionMode):
        seen: ClassVar[list[str]] = []

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    x = torch.randn(4, 8)
    remembered(module, x)
    with Seeing():
        assert same(remembered, module, x.clone()) == 0
    assert "equal" not in Seeing.seen and "linear" in Seeing.seen, "by the call that it is compared with"


def test_values_that_change_in_place_are_seen(remembered: Any, module: Counting) -> None:
    x = torch.randn(4, 8)
    same(remembered, module, x)
    x.add_(1)
    assert same(remembered, module, x) == 1
    x[0, 0] = 7.0
    assert same(remembered, module, x) == 1


def test_a_tensor_at_the_address_of_one_that_is_gone_is_another(remembered: Any, module: Counting) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        assert same(remembered, module, torch.randn(4, 8)) == 1


CHANGES: dict[str, Callable[[Counting], Any]] = {
    "a weight in place": lambda m: m.layer.weight.mul_(0.5),
    "a weight by its data": lambda m: setattr(m.layer.weight, "data", m.layer.weight.data * 0.5),
    "another parameter": lambda m: setattr(m.layer, "weight", nn.Parameter(m.layer.weight * 0.5)),
    "another layer": lambda m: setattr(m, "layer", nn.Linear(8, 8).eval()),
    "a layer that had none": lambda m: setattr(m, "drop", nn.Sequential(m.drop, nn.Tanh().eval()).eval()),
    "an empty sequence": lambda m: setattr(m, "more", nn.Sequential(*m.more, nn.Tanh()).eval()),
    "a part that was none": lambda m: setattr(
        m, "maybe", nn.Sequential(*([m.maybe] if m.maybe else []), nn.Tanh()).eval()
    ),
    "a bias that was none": lambda m: setattr(
        m.bare, "bias", nn.Parameter(torch.full((8,), 2.0 + (0 if m.bare.bias is None else float(m.bare.bias.sum()))))
    ),
    "a buffer": lambda m: m.norm.running_mean.add_(1.0),  # type: ignore[union-attr,operator]
    "an attribute": lambda m: setattr(m, "scale", m.scale + 1),
    "an attribute inside": lambda m: setattr(m.norm, "eps", m.norm.eps * 10),
    "a checkpoint": lambda m: m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()}),
    "a checkpoint by assignment": lambda m: m.load_state_dict(
        {k: v * 0.5 for k, v in m.state_dict().items()}, assign=True
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_what_changes_in_the_module_is_seen(
    remembered: Any, module: Counting, change: Callable[[Counting], Any]
) -> None:
    x = torch.randn(4, 8)
    assert [same(remembered, module, x) for _ in range(2)] == [1, 0]
    for _ in range(3):  # memory that is given back may be handed out again
        change(module)
        assert same(remembered, module, x) == 1
        assert same(remembered, module, x) == 0


def test_a_forward_that_was_replaced_is_called(remembered: Any, module: Counting) -> None:
    x = torch.randn(4, 8)
    assert [same(remembered, module, x) for _ in range(2)] == [1, 0]
    for _ in range(2):
        module.forward = lambda x, was=module.forward: was(x) + 1  # type: ignore[method-assign,assignment,misc]
        assert [same(remembered, module, x) for _ in range(2)] == [1, 1]


def test_moving_the_module_and_copying_it_is_followed(remembered: Any, module: Counting) -> None:
    x = torch.randn(4, 8)
    same(remembered, module, x)
    other = copy.deepcopy(module)
    other.layer.weight.mul_(0.5)
    assert same(remembered, other, x) == 1
    module._apply(torch.clone)
    assert same(remembered, module, x) == 1


def test_nothing_is_remembered_where_more_happens_than_computing(remembered: Any) -> None:
    x = torch.randn(4, 8)
    training = Counting(drop=0.5).train()
    assert [len(training.runs) for _ in range(3) if remembered(training, x) is not None] == [1, 2, 3]
    hooked = Counting().eval()
    hooked.layer.register_forward_hook(lambda m, given, out: out + 1)
    assert [same(remembered, hooked, x) for _ in range(3)] == [1, 1, 1]
    plain = Counting().eval()
    with torch.enable_grad():
        assert remembered(plain, x).requires_grad and remembered(plain, x).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        low = remembered(plain, x)
    assert same(remembered, plain, x) == 1 and low.dtype != remembered(plain, x).dtype


def test_inference_mode_is_no_obstacle_and_none_afterwards(remembered: Any, module: Counting) -> None:
    with torch.inference_mode():
        x = torch.randn(4, 8)
        assert [same(remembered, module, x) for _ in range(3)] == [1, 0, 0]
        x.add_(1.0)  # torch does not count this: the values are compared
        assert same(remembered, module, x) == 1
        remembered(module, x).mul_(0.0)
        assert same(remembered, module, x) == 1
    remembered(module, torch.randn(4, 8)).add_(1.0)


def test_a_result_that_was_written_to_is_not_handed_out_again(remembered: Any, module: Counting) -> None:
    x = torch.randn(4, 8)
    for _ in range(4):
        remembered(module, x).zero_()
    assert same(remembered, module, x) == 1, "nothing is remembered for such a caller"


def test_results_may_be_nested_and_each_caller_has_containers_of_his_own(remembered: Any) -> None:
    class Nested(Counting):
        def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
            self.runs.append(1)
            return {"out": self.layer(x), "more": [x + 1, None, 3]}

    nested, x = Nested().eval(), torch.randn(2, 8)
    first, second = remembered(nested, x), remembered(nested, x)
    assert len(nested.runs) == 1 and first["out"] is second["out"]
    first["more"].clear()
    assert len(second["more"]) == len(remembered(nested, x)["more"]) == 3


def test_what_is_no_tensor_is_not_remembered(remembered: Any, module: Counting) -> None:
    class Odd(Counting):
        def forward(self, x: Any) -> Any:  # type: ignore[override]
            self.runs.append(1)
            return object()

    odd, x = Odd().eval(), torch.randn(2, 8)
    assert remembered(odd, x) is not remembered(odd, x) and len(odd.runs) == 2
    assert [same(remembered, module, x, mask=nn.Parameter(torch.ones(8))) for _ in range(2)] == [1, 1]


def test_few_results_are_kept_and_what_always_changes_is_given_up(remembered: Any, module: Counting) -> None:
    xs = [torch.randn(2, 8) for _ in range(6)]
    for x in xs:
        same(remembered, module, x)
    assert [same(remembered, module, x) for x in xs[2:]] == [0, 0, 0, 0] and same(remembered, module, xs[0]) == 1
    for _ in range(20):
        x = torch.randn(2, 8)
        assert same(remembered, module, x) == 1
    assert [same(remembered, module, x) for _ in range(2)] == [1, 1]


def test_code_around_it_can_be_compiled_and_exported(remembered: Any, module: Counting) -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            return x + remembered(self.inner, given)

    around, given = Around().eval(), torch.randn(4, 8)
    compiled = torch.compile(around, backend="eager")
    runs = len(module.runs)
    for _ in range(3):
        x = torch.randn(4, 8)
        torch.testing.assert_close(compiled(x, given), x + module(given))
    assert len(module.runs) - runs == 4, "once for all three, and once for each comparison"
    module.runs = []
    exported = torch.export.export(around, (torch.randn(4, 8), given))
    torch.testing.assert_close(exported.module()(given, given), around(given, given))
