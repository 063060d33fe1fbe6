"""What TF32 may do to float32, where the target's settings allow it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from sandbox.guest import tf32
from tests.evals.arena import Arena
from tests.tools.judging.test_referee import compared
from tools.judging.workload import Workload

ROUNDING = """
import torch
from torch.nn import functional

def _as_tf32(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

_plain = functional.linear
functional.linear = lambda x, weight, bias=None: _plain(_as_tf32(x), _as_tf32(weight), bias)
"""
ALLOWED = {
    "tf32.py": [("if not torch.cuda.is_available() or torch.version.hip:\n        return ()", "return _PRODUCTS")]
}


def test_ten_bits_are_left_behind_the_binary_point() -> None:
    given = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -3.14159265, 0.0], dtype=torch.float64)
    expected = [1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -3.140625, 0.0]
    assert tf32.rounded(given).tolist() == expected and tf32.rounded(given).dtype == torch.float64


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_operands_of_these_operations_alone_are_rounded(mode: type) -> None:
    x, kernel, weight, bias = (
        torch.randn(shape, dtype=torch.float64) for shape in ((2, 3, 8, 8), (4, 3, 3, 3), (5, 8), (5,))
    )
    products, convolutions = tf32._PRODUCTS, tf32._CONVOLUTIONS
    with mode():
        for operations in (products, convolutions, (*products, *convolutions)):
            maybe = [tf32.rounded if ops[0] in operations else torch.clone for ops in (convolutions, products)]
            with tf32.Rounding(operations):
                convolved, product = functional.conv2d(x, kernel), functional.linear(x[0, 0], weight, bias)
            assert torch.equal(convolved, functional.conv2d(maybe[0](x), maybe[0](kernel)))
            torch.testing.assert_close(product, functional.linear(maybe[1](x[0, 0]), maybe[1](weight), bias))


def test_where_nothing_is_set_convolutions_may_be_on_a_device_that_has_it() -> None:
    has_it = torch.cuda.is_available() and not torch.version.hip
    assert tf32.allowed() == (tf32._CONVOLUTIONS if has_it else ())


@pytest.mark.parametrize("allowed", [False, True])
def test_a_candidate_may_err_as_tf32_does_where_that_is_allowed(
    allowed: bool, arena: Arena, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """When it is checked and while it is timed."""
    monkeypatch.setattr(Workload, "may_round", lambda self, reference: reference.ask("tf32")["allowed"])
    if allowed:
        arena = arena.with_guest(tmp_path, ALLOWED)
    coarse = arena.appended(f"coarse-{allowed}", ROUNDING)
    finding = arena.referee.check(coarse).finding
    assert (finding.verdict, finding.of_numbers) == ((None, False) if allowed else ("wrong", True)), finding.reason
    outputs = compared(arena, arena.incumbent, coarse).outputs
    supply = replace(arena.referee.supply, setting=arena.referee.setting, _reference=None)
    request.addfinalizer(supply.close)
    assert replace(arena.referee, supply=supply).check_timed(outputs).verdict == finding.verdict
