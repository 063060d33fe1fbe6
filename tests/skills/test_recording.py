"""What is remembered of the inputs of a recorded call stays out of the recording, and follows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests import assets


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.runs = nn.Linear(8, 8), []  # type: ignore[var-annotated]

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        self.runs.append(1)
        out = self.layer(x) + shift
        return out, {"twice": 2 * out}


@pytest.fixture
def pack() -> Any:
    """Both assets in one package, so that they share what is being recorded."""
    return assets.load("amd-kernel-optimization", "remembered")


@pytest.fixture
def recording(pack: Any) -> Any:
    return assets.beside(pack, "recording").Recording


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


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


def test_nothing_is_computed_or_copied_for_the_same_input(pack: Any, recording: Any) -> None:
    encoder, own, x = Encoder().eval(), torch.randn(2, 8), torch.randn(2, 8)
    made = recording([own])
    with made.being_made():
        out, _ = pack.remembered(encoder, own)
    made.refresh([x])
    runs, version = len(encoder.runs), out._version
    assert made.refresh([x]) and (len(encoder.runs), out._version) == (runs, version)
    x.add_(1.0)
    assert made.refresh([x]) and len(encoder.runs) == runs + 1
    torch.testing.assert_close(out, encoder.layer(x))
    encoder.layer.weight.mul_(2.0)
    assert made.refresh([x])
    torch.testing.assert_close(out, encoder.layer(x))


def test_what_was_computed_from_other_tensors_is_recorded_like_the_rest(pack: Any, recording: Any) -> None:
    encoder, own = Encoder().eval(), torch.randn(2, 8)
    made = recording([own])
    with made.being_made():
        for x in (own * 2, own[:1], own.clone()):
            torch.testing.assert_close(pack.remembered(encoder, x)[0], encoder.layer(x))
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
    made = recording([own := torch.ones(2, 8)])
    with made.being_made():
        out, _ = pack.remembered(Encoder().eval(), own)
        assert not made.was_written_to()
        with torch.inference_mode():
            out.zero_()
    assert made.was_written_to()


def test_it_ends_with_the_recording(pack: Any, recording: Any) -> None:
    with pytest.raises(ZeroDivisionError), recording([]).being_made():
        _ = 1 / 0
    assert pack.current() is None
