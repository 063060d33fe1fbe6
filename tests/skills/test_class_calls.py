"""Calls of a class go through a function, those of subclasses do not, and who listens to all hears of each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests import assets


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor, times: int = 2) -> torch.Tensor:
        return x * times


class Own(Doubles):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) + 1


@pytest.mark.parametrize(("base", "wanted"), [(Doubles, 6.0), (Own, 7.0)])
def test_calls_go_through_the_function(monkeypatch: pytest.MonkeyPatch, base: Any, wanted: float) -> None:
    seen, heard, original = list[nn.Module](), list[nn.Module](), nn.Module.__call__

    def noted(module: nn.Module, plain: Any, args: Any, kwargs: Any) -> Any:
        seen.append(module)
        return plain(*args, **kwargs)

    through = assets.load("amd-kernel-optimization", "class_calls").through(noted)
    cls = through(type("Through", (base,), dict(vars(base))))
    module, other = cls(), type("Sub", (cls,), {})()

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        heard.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "__call__", call)
    x = torch.tensor(2.0)
    assert module(x, times=3) == other(x, times=3) == wanted
    assert seen == [module] and heard == [module, other]
