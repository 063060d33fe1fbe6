"""A Triton candidate passes when it compiles for every architecture, and nothing of it spills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.isa.conftest import KERNELS
from tools.errors import UnknownArchitecture
from tools.hardware import ARCHITECTURES
from tools.isa.compile import Compiler, Source
from tools.isa.gate import check

HUGE = """
@triton.jit
def huge(x_ptr: "*fp16", y_ptr: "*fp16", k: "i32:16", M: tl.constexpr = 128, K: tl.constexpr = 256):
    rows, inner = tl.arange(0, M), tl.arange(0, K)
    sums = tl.zeros((M, M), tl.float32)
    for start in range(0, k, K):
        a = tl.load(x_ptr + rows[:, None] * k + start + inner[None, :])
        b = tl.load(y_ptr + (start + inner)[:, None] * M + rows[None, :])
        sums = tl.dot(a, b, sums)
    tl.store(y_ptr + rows[:, None] * M + rows[None, :], sums.to(tl.float16))
"""
WRONG = """
@triton.jit
def wrong(x_ptr: "*fp16", n: "i32", BLOCK: tl.constexpr = 100):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1)
"""


def test_an_honest_kernel_passes_on_all_architectures(compiler: Compiler) -> None:
    found = check(compiler, Source(KERNELS / "softmax.py"), list(ARCHITECTURES))
    assert found.passed and not found.reasons
    assert len(found.compiled) == len(ARCHITECTURES)


def test_a_kernel_that_spills_is_refused_with_its_numbers(compiler: Compiler) -> None:
    found = check(compiler, Source(KERNELS / "spilling.py"), ["gfx942"])
    assert not found.passed
    assert found.reasons[0].startswith("too_large on gfx942: ") and "are spilled" in found.reasons[0]
    assert any("bytes of scratch a lane" in reason for reason in found.reasons)


def test_a_kernel_that_asks_for_more_lds_than_there_is_is_refused(
    compiler: Compiler, kernel_file: Callable[[str], Path]
) -> None:
    found = check(compiler, Source(kernel_file(HUGE)), ["gfx942"])
    assert any("bytes of LDS, of which there are 65536" in reason for reason in found.reasons)


def test_a_kernel_that_does_not_compile_is_refused_with_the_compilers_words(
    compiler: Compiler, kernel_file: Callable[[str], Path]
) -> None:
    found = check(compiler, Source(kernel_file(WRONG)), ["gfx942", "gfx950"])
    assert not found.passed
    assert [reason.split(":")[0] for reason in found.reasons] == ["wrong on gfx942", "wrong on gfx950"]
    assert "power of 2" in found.reasons[0]


def test_a_file_without_kernels_is_refused_and_does_not_raise(
    compiler: Compiler, kernel_file: Callable[[str], Path]
) -> None:
    found = check(compiler, Source(kernel_file("")), ["gfx942"])
    assert not found.passed and found.reasons == ("the file holds no Triton kernel.",)


def test_an_architecture_that_is_not_known_is_a_fault_of_whoever_asks(compiler: Compiler) -> None:
    with pytest.raises(UnknownArchitecture):
        check(compiler, Source(KERNELS / "softmax.py"), ["sm_90"])
