"""Compiling is no exporting, in every version of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests import assets


class Telling(nn.Module):
    """Adds 1 where the program is exported, else 2."""

    def __init__(self) -> None:
        super().__init__()
        self.asset: Any = assets.load("amd-kernel-optimization", "exporting")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.asset.is_exporting() else x + 2


def test_compiling_is_no_exporting() -> None:
    torch._dynamo.reset()
    telling = torch.compile(Telling(), backend="eager", fullgraph=True)
    assert torch.equal(telling(torch.zeros(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize("strict", [False, True])
def test_exporting_is(strict: bool) -> None:
    exported = torch.export.export(Telling(), (torch.zeros(2),), strict=strict).module()
    assert torch.equal(exported(torch.zeros(2)), torch.ones(2))
