"""What a run leaves to the user is said once, and only where it was measured."""

from __future__ import annotations

import math

from agent.reporting.outcome import compile_advice
from tools.judging.comparison import Comparison


def comparison(speedup: float) -> Comparison:
    """Six restarts that all measured the same."""
    return Comparison(purpose="baseline", incumbent="a", candidate="b", case_log_ratios=[[math.log(speedup)]] * 6)


def test_only_the_best_mode_of_torch_compile_is_advised_and_only_above_the_noise() -> None:
    modes = {"default": comparison(1.5), "reduce-overhead": comparison(2.0), "max-autotune": comparison(0.9)}
    (line,) = compile_advice(modes, 0.03)
    assert line.startswith("One line of torch.compile (mode reduce-overhead)") and "2.00x" in line
    assert compile_advice({"default": comparison(1.02)}, 0.03) == compile_advice({}, 0.03) == []
