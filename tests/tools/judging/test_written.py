"""What calls write, into arguments and buffers, is judged against the truth as their results are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest
from tools.judging import correctness, tensors
from tools.judging.script import Call, Played, Script

SCRIPT = Script((), (Call("first call", 0),))


def rounded(truth: torch.Tensor, error: float) -> torch.Tensor:
    """In 16 bits, as far off as a few layers leave it, each time elsewhere."""
    return (truth * (1 + error * (2 * torch.rand(truth.shape, dtype=torch.float64) - 1))).bfloat16()


def test_what_is_written_into_an_argument_may_err_as_a_result_may(path: Any) -> None:
    before, truth = path([torch.zeros(32, 64).bfloat16()]), torch.randn(32, 64, dtype=torch.float64)

    def judged(candidate: torch.Tensor, wide: torch.Tensor) -> None:
        mine, theirs, true = (Played({}, {0: path([x])}, {}, None, 0.0) for x in (candidate, original, wide))
        correctness._arguments(SCRIPT, mine, theirs, true, [before])

    original = rounded(truth, 0.03)
    judged(rounded(truth, 0.03), truth)
    wrong = [(rounded(truth, 0.1), truth), (torch.zeros_like(original), truth)]
    # a truth that is none: another shape, another function
    wrong += [(rounded(truth, 0.03), truth[1:]), (torch.zeros_like(original), -truth)]
    for candidate, wide in wrong:
        with pytest.raises(correctness._Failed, match="ends up different"):
            judged(candidate, wide)


def test_a_buffer_may_err_as_a_result_may(path: Any) -> None:
    truth = torch.randn(32, 64, dtype=torch.float64)

    def judged(candidate: torch.Tensor) -> None:
        states = (candidate, original, truth)
        mine, theirs, true = (Played({}, {}, {}, path({"cache": x}), 0.0) for x in states)
        correctness._state(mine, theirs, true)

    original = rounded(truth, 0.03)
    judged(rounded(truth, 0.03))
    with pytest.raises(correctness._Failed, match="holds other values"):
        judged(rounded(truth, 0.1))


def test_only_calls_that_write_are_asked_what_they_wrote(path: Any) -> None:
    script = Script((), tuple(Call("first call", draw) for draw in range(3)))
    x = torch.ones(3)
    after = Played({}, {0: path([x]), 1: path([x + 1]), 2: path([x, x])}, {}, None, 0.0)
    assert correctness.written(script, after, [path([x])] * 3) == {1, 2}


def test_the_truth_saves_buffers_without_parameters(tmp_path: Path) -> None:
    text = "import torch\n\ndef build():\n    return torch.nn.BatchNorm1d(4)\n\ndef inputs(seed):\n    return ()\n"
    (tmp_path / "bench.py").write_text(text)
    reference: Any = guest.module("reference").Reference(str(tmp_path), "bench.py")
    before = torch.is_grad_enabled()
    try:
        reference.op_build()
    finally:
        torch.set_grad_enabled(before)
    reference.op_save_state(str(tmp_path / "all"))
    reference.op_save_state(str(tmp_path / "buffers"), buffers=True)
    everything, buffers = (tensors.read(tmp_path / name).named() for name in ("all", "buffers"))
    assert set(everything) - set(buffers) == {"weight", "bias"} and "running_mean" in buffers
