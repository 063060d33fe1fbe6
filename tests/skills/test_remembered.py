"""`remembered` gives what the module would give, whatever was changed since, and computes it once where nothing was."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests import assets

pytestmark = pytest.mark.usefixtures("no_grad")


class Runs:
    """How often something ran, of which nothing is seen that looks at a module."""

    count = 0


class Counting(nn.Module):
    """Counts how often it ran."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.layer, self.drop, self.runs = nn.Linear(8, 8), nn.Dropout(drop), Runs()

    def forward(self, x: torch.Tensor, shift: float = 0.0, mask: Any = None) -> torch.Tensor:
        self.runs.count += 1
        out: torch.Tensor = self.drop(self.layer(x)) + shift
        return out if mask is None else out * mask


@pytest.fixture
def remembered() -> Any:
    torch._dynamo.reset()
    return assets.load("amd-kernel-optimization", "remembered").remembered


@pytest.fixture
def module() -> Counting:
    torch.manual_seed(0)
    return Counting().eval()


def same(remembered: Any, module: Counting, *args: Any, **kwargs: Any) -> int:
    """How often the module ran for a call that gave what it should."""
    runs = module.runs.count
    out = remembered(module, *args, **kwargs)
    ran = module.runs.count - runs
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


def test_values_that_change_in_place_or_are_gone_are_seen(remembered: Any, module: Counting) -> None:
    x = torch.randn(4, 8)
    same(remembered, module, x)
    x[0, 0] = 7.0
    assert same(remembered, module, x) == 1
    for _ in range(20):
        assert same(remembered, module, torch.randn(4, 8)) == 1, "perhaps at the address of the last one"


def test_nothing_is_remembered_in_training_with_gradients_and_of_autocast(remembered: Any) -> None:
    x = torch.randn(4, 8)
    training = Counting(drop=0.5).train()
    assert [training.runs.count for _ in range(3) if remembered(training, x) is not None] == [1, 2, 3]
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
        assert same(remembered, module, x) == 0, "what is handed out on a CPU is a copy"
    remembered(module, torch.randn(4, 8)).add_(1.0)


def test_who_writes_to_a_result_writes_to_his_own(remembered: Any, module: Counting) -> None:
    x = torch.randn(4, 8)
    for _ in range(4):
        remembered(module, x).zero_()
        remembered(module, x).numpy()[:] = 7.0
    assert same(remembered, module, x) == 0


@pytest.mark.gpu
def test_on_a_device_a_result_that_was_written_to_is_not_handed_out_again(remembered: Any, module: Counting) -> None:
    module, x = module.cuda(), torch.randn(4, 8, device="cuda")
    for _ in range(4):
        remembered(module, x).zero_()
    assert same(remembered, module, x) == 1, "nothing is remembered for such a caller"


class Noisy(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x) + torch.randn(8)


class Writing(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x.mul_(2))


class Hidden(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.unknown = [{"layer": nn.Linear(8, 8)}]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(self.unknown[0]["layer"](x))


def test_calls_that_do_more_than_compute_from_what_is_known_are_made_each_time(remembered: Any) -> None:
    x = torch.randn(4, 8)
    for module in (Noisy().eval(), Writing().eval(), Hidden().eval(), Counting().eval().share_memory()):
        runs = []
        for _ in range(3):
            remembered(module, x)
            runs.append(module.runs.count)
        assert runs == [1, 2, 3]
    noisy = Noisy().eval()
    assert not torch.equal(remembered(noisy, x), remembered(noisy, x))


def test_a_module_that_writes_to_its_input_still_does(remembered: Any) -> None:
    module = Writing().eval()
    x = torch.ones(4, 8)
    for times in (2.0, 4.0, 8.0):
        remembered(module, x)
        assert torch.equal(x, torch.full((4, 8), times))
    with torch.inference_mode():
        x = torch.ones(4, 8)
        for times in (2.0, 4.0, 8.0):
            remembered(Writing().eval(), x)
            assert torch.equal(x, torch.full((4, 8), times))


FILLS: dict[str, Callable[[Any, Any], Any]] = {
    "a list": lambda kept, y: kept["list"].append(y),
    "in place of another": lambda kept, y: kept.update(old=y),
    "under a new name": lambda kept, y: kept.update(new=y),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=list(FILLS))
def test_a_module_that_writes_into_a_container_still_does(remembered: Any, fill: Callable[[Any, Any], Any]) -> None:
    class Keeping(Counting):
        def forward(self, x: torch.Tensor, kept: Any) -> torch.Tensor:  # type: ignore[override]
            fill(kept, x * 2)
            return super().forward(x)

    module, x = Keeping().eval(), torch.ones(4, 8)
    for runs in (1, 2, 3):
        kept: dict[str, Any] = {"list": [], "old": torch.zeros(())}
        remembered(module, x, kept)
        wanted: dict[str, Any] = {"list": [], "old": torch.zeros(())}
        fill(wanted, x * 2)
        assert repr(kept) == repr(wanted) and module.runs.count == runs


def test_containers_that_are_only_read_are_no_obstacle(remembered: Any) -> None:
    class Reading(Counting):
        def forward(self, x: torch.Tensor, more: Any) -> torch.Tensor:  # type: ignore[override]
            return super().forward(x, mask=more["masks"][0])

    module, x, mask = Reading().eval(), torch.ones(4, 8), torch.ones(8)
    for _ in range(3):
        remembered(module, x, {"masks": [mask], "n": 1000})
    assert module.runs.count == 1


def test_another_stream_waits_to_read(remembered: Any, module: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[Any] = []

    class Computed:
        def __init__(self, tensors: Any) -> None:
            happened.append(("computed", module.runs.count, len(tensors)))

        def for_here(self, tensors: Any) -> None:
            happened.append(("waited", len(tensors)))

    asset = importlib.import_module(remembered.__module__)
    equal = torch.equal

    def compared(one: torch.Tensor, other: torch.Tensor) -> bool:
        if one.shape == x.shape:  # no state of a generator
            happened.append("compared")
        return equal(one, other)

    monkeypatch.setattr(asset, "Computed", Computed)
    monkeypatch.setattr(torch, "equal", compared)
    x = torch.randn(4, 8)
    for given in (x, x, x.clone()):
        remembered(module, given)
    again = [("waited", 1), "compared"]
    assert happened == [("computed", 1, 2), "compared", *again, *again]


def test_what_others_write_to_is_compared_by_its_values(remembered: Any, module: Counting) -> None:
    frames = np.zeros((4, 8), dtype=np.float32)
    x, own = torch.from_numpy(frames), torch.zeros(4, 8)
    assert [same(remembered, module, x) for _ in range(2)] == [1, 0]
    frames[:] = 1.0
    assert same(remembered, module, x) == 1
    assert same(remembered, module, own) == 0, "the values that were there first"
    own.data[:] = 2.0
    assert [same(remembered, module, own) for _ in range(2)] == [1, 0]
    own.data[:] = -0.0
    assert same(remembered, module, own) == 1, "not those of zero"
    own.data[0, 0] = float("nan")
    runs = module.runs.count
    assert remembered(module, own).isnan().any() and remembered(module, own).isnan().any()
    assert module.runs.count == runs + 1, "NaN is NaN"


def test_results_may_be_nested_but_of_tensors_and_plain_values(remembered: Any, module: Counting) -> None:
    class Nested(Counting):
        extra: Any = None

        def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
            self.runs.count += 1
            return {"out": self.layer(x), "more": [x + 1, None, 3, self.extra]}

    nested, odd, x = Nested().eval(), Nested().eval(), torch.randn(2, 8)
    first, second = remembered(nested, x), remembered(nested, x)
    assert nested.runs.count == 1 and torch.equal(first["out"], second["out"])
    first["more"].clear()
    assert len(second["more"]) == len(remembered(nested, x)["more"]) == 4, "each caller has containers of its own"
    odd.extra = object()
    assert [remembered(odd, x) and odd.runs.count for _ in range(2)] == [1, 2]
    assert [same(remembered, module, x, mask=nn.Parameter(torch.ones(8))) for _ in range(2)] == [1, 1]


def test_an_input_that_is_handed_on_may_be_written_to(remembered: Any) -> None:
    class Masked(Counting):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:  # type: ignore[override]
            return super().forward(x, mask=mask), mask[None]

    module, x, mask = Masked().eval(), torch.randn(4, 8), torch.ones(8)
    remembered(module, x, mask)
    mask.data.zero_()
    assert remembered(module, x, torch.ones(8))[1].all() and module.runs.count == 1


def test_an_inference_tensor_may_be_handed_on(remembered: Any) -> None:
    class Masked(Counting):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:  # type: ignore[override]
            return super().forward(x, mask=mask), mask[None]

    module = Masked().eval()
    with torch.inference_mode():
        x, mask = torch.randn(4, 8), torch.ones(8)
        found = [remembered(module, x, mask) for _ in range(3)]
    assert module.runs.count == 1 and all(torch.equal(mask, each[0]) for _, each in found)


def test_what_another_thread_draws_meanwhile_is_no_reason_to_give_up(remembered: Any) -> None:
    class Interrupted(Counting):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            if self.runs.count < 2:
                random.random()
            return super().forward(x)

    module, x = Interrupted().eval(), torch.randn(4, 8)
    for _ in range(5):
        remembered(module, x)
    assert module.runs.count == 3


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
    runs = module.runs.count
    for _ in range(3):
        x = torch.randn(4, 8)
        torch.testing.assert_close(compiled(x, given), x + module(given))
    assert module.runs.count - runs == 4, "once for all three, and once for each comparison"
    exported = torch.export.export(around, (torch.randn(4, 8), given))
    torch.testing.assert_close(exported.module()(given, given), around(given, given))
