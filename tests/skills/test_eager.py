"""A call that computes and no more is told from one that somebody looks at, and results that agree from others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from tests import assets


@pytest.fixture(scope="module")
def eager() -> Any:
    return assets.load("amd-kernel-optimization", "eager")


@pytest.fixture(scope="module")
def agree() -> Any:
    return assets.load("amd-kernel-optimization", "agreement").agree


class Passing(TorchFunctionMode):
    """Sees every function and changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_plain_call(eager: Any) -> None:
    with torch.inference_mode():
        assert eager.is_plain() and not (eager.means_more() or eager.is_watched() or eager.is_capturing())


def test_a_default_device_looks_at_nothing(eager: Any) -> None:
    with torch.device("cpu"):
        assert not eager.is_watched()
    torch.set_default_device("cpu")
    try:
        assert not eager.is_watched()
    finally:
        torch.set_default_device(None)


def test_operations_that_mean_more(eager: Any) -> None:
    seen: list[bool] = []

    def looked(x: torch.Tensor) -> torch.Tensor:
        seen.append(eager.means_more() and not eager.is_plain())
        return x + 1

    x = torch.ones(2, 2)
    torch.func.vmap(looked)(x)
    torch.func.jvp(looked, (x,), (x,))
    torch.jit.trace(looked, (x,), check_trace=False)
    with torch.autograd.forward_ad.dual_level():
        looked(x)
    with FlopCounterMode(display=False):
        looked(x)
    assert seen == [True] * 5


def test_autocast_changes_results_but_is_no_onlooker(eager: Any) -> None:
    with torch.autocast("cpu"):
        assert not eager.is_plain() and not eager.means_more()


def test_who_wants_to_see_each_call(eager: Any) -> None:
    with Passing():
        assert eager.is_watched()
    handle = nn.modules.module.register_module_forward_hook(lambda *given: None)
    assert eager.is_watched()
    handle.remove()
    assert not eager.is_watched()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_agrees(agree: Any, dtype: torch.dtype) -> None:
    wanted = torch.linspace(-1, 1, 64, dtype=torch.float64).to(dtype)
    apart = wanted.clone()
    apart[0] *= 1.25
    other = torch.float32 if dtype is torch.float64 else torch.float64
    assert agree(wanted.clone(), wanted) and not agree(apart, wanted)
    assert not agree(wanted[:1], wanted) and not agree(wanted.to(other), wanted)
    assert not agree(wanted * float("nan"), wanted)


def test_nothing_agrees_with_infinity_and_nothing_with_nothing(agree: Any) -> None:
    wanted = torch.tensor([float("inf"), 1.0])
    assert not agree(torch.tensor([5.0, 7.0]), wanted) and not agree(wanted.clone(), wanted)
    assert agree(torch.empty(0, 3), torch.empty(0, 3))


def test_float64_is_compared_in_float64(agree: Any) -> None:
    wanted = torch.ones(4, dtype=torch.float64)
    assert not agree(wanted + 1e-9, wanted)
