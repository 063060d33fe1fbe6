"""What a recording takes by value, and what is left of it when its module is gone."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets

graphed = assets.load("amd-kernel-optimization", "graphed")


@graphed.graphed
class Scaled(nn.Module):
    """Its scale is a tensor that stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), torch.tensor(2.0)

    def forward(self, x: torch.Tensor, divisor: float = 1.0) -> torch.Tensor:
        return self.layer(x) * self.scale / torch.full((), divisor, device=x.device)


def recorded(module: Any, *args: Any) -> Any:
    """The result of a replay."""
    with torch.no_grad():
        for _ in range(3):
            result = module(*args)
    assert graphed._recorders.get(module).graphs
    return result


@pytest.mark.parametrize("strict", [False, True], ids=["traced", "by dynamo"])
def test_an_export_is_not_recorded(monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    """Nor looked at: of the two ways, only one tells as compiling does."""
    called: list[object] = []
    monkeypatch.setattr(graphed, "is_initialized", lambda: True)
    monkeypatch.setattr(graphed, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(graphed._Recorder, "call", lambda self, module, plain, args, kwargs: called.append(module))
    module, given = Scaled().eval(), (torch.ones(2, 4),)
    with torch.no_grad():
        torch.export.export(nn.Sequential(module), given, strict=strict)
        assert not called
        module(*given)
    assert called, "outside of an export it would be"


def test_what_is_given_up_holds_nothing() -> None:
    recorder = graphed._Recorder()
    recorder.graphs, recorder.state = {1: None}, object()
    recorder._give_up()
    assert recorder.failed and not recorder.graphs and recorder.state is None


@pytest.mark.gpu
def test_a_tensor_on_the_cpu_is_followed() -> None:
    module, x = Scaled().cuda().eval(), torch.randn(2, 4, device="cuda")
    for scale in (2.0, 3.0, 0.5):
        module.scale.fill_(scale)
        result = recorded(module, x)
        torch.testing.assert_close(result, module.layer(x).detach() * scale)
    with torch.no_grad():
        module.scale.fill_(7.0)
        torch.testing.assert_close(module(x), module.layer(x) * 7.0)


@pytest.mark.gpu
def test_zero_is_recorded_for_each_sign() -> None:
    module, x = Scaled().cuda().eval(), torch.randn(2, 4, device="cuda")
    positive, negative = recorded(module, x, 0.0), recorded(module, x, -0.0)
    assert torch.equal(positive, -negative) and positive.isinf().all()


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_module_that_is_gone_takes_its_recordings_with_it(compiled: bool) -> None:
    module: Any = Scaled().cuda().eval()
    if compiled:
        module.compile()  # from where on it leads back to itself
    recorded(module, torch.randn(2, 4, device="cuda"))
    gone = weakref.ref(module), weakref.ref(module.layer.weight), weakref.ref(graphed._recorders.get(module))
    del module
    if compiled:
        torch.compiler.reset()
        gc.collect()
    assert [each() for each in gone] == [None, None, None]
