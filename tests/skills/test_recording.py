"""What is remembered of the inputs of a recorded call stays out of the recording, and follows them."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets

pytestmark = pytest.mark.usefixtures("no_grad")

RUNS: list[int] = []


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        RUNS.append(1)
        out = self.layer(x) + shift
        return out, {"twice": 2 * out}


@pytest.fixture
def pack() -> Any:
    """Both assets in one package, so that they share what is being recorded."""
    return assets.load("amd-kernel-optimization", "remembered")


@pytest.fixture
def recording(pack: Any) -> Any:
    return assets.beside(pack, "recording").Recording


def test_a_result_of_an_input_is_an_input_of_the_recording(pack: Any, recording: Any) -> None:
    encoder, own = Encoder().eval(), torch.randn(2, 8)
    made = recording([own, 3])
    with made.being_made():
        out, more = pack.remembered(encoder, own, shift=3)
        again, _ = pack.remembered(encoder, own, shift=3)
        other, _ = pack.remembered(encoder, own)
    assert again is out and other is not out
    for x in (torch.randn(2, 8), own, torch.randn(2, 8)):
        assert made.refresh([x, 3])
        torch.testing.assert_close(out, encoder.layer(x) + 3)
        torch.testing.assert_close(more["twice"], 2 * out)
        torch.testing.assert_close(other, encoder.layer(x))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_nothing_is_computed_again_for_the_same_input(pack: Any, recording: Any, device: str) -> None:
    encoder, own, x = Encoder().to(device).eval(), *torch.randn(2, 2, 8, device=device)
    made = recording([own])
    with made.being_made():
        out, _ = pack.remembered(encoder, own)
    made.refresh([x])
    runs, version = len(RUNS), out._version
    assert made.refresh([x]) and len(RUNS) == runs and (device == "cpu" or out._version == version)
    x.data.add_(1.0)
    assert made.refresh([x]) and len(RUNS) == runs + 1
    torch.testing.assert_close(out, encoder.layer(x))
    encoder.layer.weight.data.mul_(2.0)
    assert made.refresh([x])
    torch.testing.assert_close(out, encoder.layer(x))


def test_what_was_computed_from_other_tensors_is_recorded_like_the_rest(pack: Any, recording: Any) -> None:
    encoder, own = Encoder().eval(), torch.randn(2, 8)
    made = recording([own])
    with made.being_made():
        for x in (own * 2, own[:1], own.clone()):
            runs = len(RUNS)
            for _ in range(2):
                torch.testing.assert_close(pack.remembered(encoder, x)[0], encoder.layer(x))
            assert len(RUNS) == runs + 2, "to compare x would wait for the device"
    assert made.refresh([own]) and not made._results


def test_a_result_of_another_form_is_refused(pack: Any, recording: Any) -> None:
    class Growing(Encoder):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return self.layer(x)[: 1 + int(x[0, 0] > 0)]

    growing, made = Growing().eval(), recording([own := torch.ones(2, 8)])
    with made.being_made():
        pack.remembered(growing, own)
    assert made.refresh([own]) and not made.refresh([-own])


def test_a_caller_that_writes_to_a_result_is_noticed(pack: Any, recording: Any) -> None:
    encoder, made = Encoder().eval(), recording([own := torch.ones(2, 8)])
    with made.being_made():
        out, _ = pack.remembered(encoder, own)
        assert made.holds()
        with torch.inference_mode():
            out.mul_(1.0)
    assert not made.holds()


def test_what_depends_on_where_in_the_call_it_was_asked_for_does_not_hold(pack: Any, recording: Any) -> None:
    class Switched(Encoder):
        on = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            out: torch.Tensor = self.layer(x)
            return -out if self.on else out

    own = torch.ones(2, 8)
    for twice in (False, True):
        switched, made = Switched().eval(), recording([own])
        with made.being_made():
            if twice:
                pack.remembered(switched, own)
            switched.on = True
            pack.remembered(switched, own)
            if not twice:
                switched.on = False
        assert not made.holds()
    encoder, made = Encoder().eval(), recording([own])
    with made.being_made(), torch.autocast("cpu", torch.bfloat16):
        pack.remembered(encoder, own)
    assert not made.holds()


def test_plain_values_stay_out_with_the_tensors_and_results_elsewhere_do_not(pack: Any, recording: Any) -> None:
    class Odd(Encoder):
        more: Any = None

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x), self.more

    own = torch.ones(2, 8)
    odd, made = Odd().eval(), recording([own])
    with made.being_made():
        out, more = pack.remembered(odd, own)
    assert more is None and made.holds() and made.refresh([own + 1])
    torch.testing.assert_close(out, odd.layer(own + 1))
    odd.more = 3
    assert not made.refresh([own])
    odd.more, made = torch.ones((), device="meta"), recording([own])
    with made.being_made():
        pack.remembered(odd, own)
    assert not made._results, "it would be recorded by its value"


def test_what_never_repeats_and_what_is_gone_is_not_kept_out(pack: Any, recording: Any) -> None:
    encoder, own = Encoder().eval(), torch.ones(2, 8)
    for _ in range(pack.MISSES + 2):
        pack.remembered(encoder, torch.randn(2, 8))
    made = recording([own])
    with made.being_made():
        pack.remembered(encoder, own)
        assert not made._results
        pack.remembered(Encoder().eval(), own)
    gc.collect()
    assert not made.refresh([own]) and not made.holds()


def test_it_ends_with_the_recording(pack: Any, recording: Any) -> None:
    with pytest.raises(ZeroDivisionError), recording([]).being_made():
        _ = 1 / 0
    assert pack.current() is None
