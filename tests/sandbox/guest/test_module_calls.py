"""Who looks on while modules are called sees each call, and the code that is called sees nobody."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sandbox.guest.module_calls import ModuleCalls
from sandbox.guest.observe_modules import ModuleTimes
from sandbox.guest.observe_norms import NormProbe
from sandbox.guest.observe_trace import Trace
from sandbox.guest.observe_where import Where
from sandbox.guest.profiler import ModuleMarks


class StepsAside(nn.Module):
    """Like a kernel of one's own, which must not pass by a hook."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hooks = torch.nn.modules.module
        hooked = hooks._global_forward_hooks or hooks._global_forward_pre_hooks or self._forward_hooks
        return x.neg() if hooked else x.abs()


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("in forward")


def test_each_call_is_seen_with_its_result_and_without_one_where_it_raised() -> None:
    seen = list[Any]()
    model = nn.Sequential(StepsAside(), Raises())

    class Looking(ModuleCalls):
        def before(self, module: nn.Module) -> None:
            seen.append(module)

        def after(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            seen.append((module, len(args), result))

    with pytest.raises(KeyError), Looking():
        model(torch.ones(2))
    assert seen[:2] == [model, model[0]]
    assert seen[2][:2] == (model[0], 1) and seen[2][2].tolist() == [1.0, 1.0]
    assert seen[3:] == [model[1], (model[1], 1, None), (model, 1, None)]


def test_nobody_who_looks_on_is_seen(tmp_path: Any) -> None:
    model, x = StepsAside(), torch.full((2,), -1.0)
    where = Where(str(tmp_path), model)
    plain = nn.Module.__call__
    for looking in (ModuleMarks(where), ModuleTimes(where), NormProbe(where), Trace(where, [x], lambda: None)):
        with looking:
            assert model(x).tolist() == [1.0, 1.0], looking
        assert nn.Module.__call__ is plain
