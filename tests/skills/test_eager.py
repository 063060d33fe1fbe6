"""A call that computes and no more is told from one that somebody looks at."""

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


class Passing(TorchFunctionMode):
    """Sees every function and changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_plain_call_and_one_whose_results_autocast_changes(eager: Any) -> None:
    with torch.inference_mode(), torch.device("cpu"):
        assert eager.is_plain() and not (eager.means_more() or eager.is_watched() or eager.is_capturing())
    with torch.autocast("cpu"):
        assert not eager.is_plain() and not eager.means_more()


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


class Telling(nn.Module):
    """Adds 1 where the program is exported, else 2."""

    def __init__(self, eager: Any) -> None:
        super().__init__()
        self.eager = eager

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.eager.is_exporting() else x + 2


@pytest.mark.parametrize("strict", [False, True])
def test_exporting_is_told_from_compiling(eager: Any, strict: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Telling(eager), backend="eager", fullgraph=True)
    exported = torch.export.export(Telling(eager), (torch.zeros(2),), strict=strict).module()
    assert (float(compiled(torch.zeros(()))), exported(torch.zeros(2)).tolist()) == (2.0, [1.0, 1.0])


def test_who_wants_to_see_each_call(eager: Any) -> None:
    with Passing():
        assert eager.is_watched()
    handle = nn.modules.module.register_module_forward_hook(lambda *given: None)
    assert eager.is_watched()
    handle.remove()
    assert not eager.is_watched()
