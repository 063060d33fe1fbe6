"""Whoever looks on, differentiates, traces or compiles gets the plain call, from every asset that keeps something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.skills.uses import USES, each, pair

pytestmark = pytest.mark.usefixtures("at_work")


class Called(nn.Module):
    """A module around one, as others call it."""

    def __init__(self, model: nn.Module, call: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.model, x)


def forward_gradient(module: Called, x: torch.Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(module(dual)).tangent


def gradients(module: Called, x: torch.Tensor) -> Any:
    with torch.enable_grad():
        module(x).square().mean().backward()
    return [parameter.grad for parameter in module.parameters()]


def operations(module: Called, x: torch.Tensor) -> Any:
    with FlopCounterMode(display=False) as counted:
        module(x)
    return torch.tensor(counted.get_total_flops())


def with_other_weights(module: Called, x: torch.Tensor) -> Any:
    state = {name: 2 * value for name, value in module.state_dict().items()}
    return torch.func.functional_call(module, state, (x,))


ONLOOKERS: dict[str, Callable[[Called, torch.Tensor], Any]] = {
    "vmap": lambda module, x: torch.vmap(module)(torch.stack([x, 2 * x])),
    "a forward gradient": forward_gradient,
    "gradients": gradients,
    "a mode that counts": operations,
    "a program that is traced": lambda module, x: torch.jit.trace(module, (x,), check_trace=False)(x + 1),
    "a program that is exported": lambda module, x: torch.export.export(module, (x,)).module()(x + 1),
    "a program that is compiled": lambda module, x: torch.compile(module, backend="eager")(x + 1),
    "weights of one call": with_other_weights,
    "inference mode": torch.inference_mode()(lambda module, x: module(x + 1)),
}


COMPILED = "packed_linear, compiled"
# PyTorch itself has no such calls.
NONE = {("grouped_experts", "vmap"), (COMPILED, "a mode that counts"), (COMPILED, "a program that is traced")}


@each("onlooker", ONLOOKERS, without=NONE)
def test_who_looks_on_sees_the_plain_call(name: str, onlooker: str) -> None:
    use = USES[name]
    plain, used, x = pair(use)
    look, both = ONLOOKERS[onlooker], (Called(plain, use.call_plain).eval(), Called(used, use.call).eval())
    wanted, found = (look(module, x) for module in both)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    wanted, found = (module(x + 2) for module in both)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
