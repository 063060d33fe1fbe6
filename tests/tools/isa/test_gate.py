"""A Triton candidate passes when it compiles for every architecture, and nothing of it spills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.isa.conftest import KERNELS
from tools.diff.patch import make_diff
from tools.errors import UnknownArchitecture
from tools.hardware import ARCHITECTURES
from tools.isa.compile import Compiler, Source
from tools.isa.gate import Gate, Looked, check

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


KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, y_ptr, n, by, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = index < n
    tl.store(y_ptr + index, by * tl.load(x_ptr + index, mask=kept), mask=kept)

def scale(x, by):
    if torch.is_grad_enabled():
        return x * by
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), by, BLOCK=1024)
    return y
"""
BENCH = """
import torch
from kernels import scale

def build():
    return lambda x: scale(x, 2.0)

def inputs(seed):
    return (torch.randn(4096, device="cuda", dtype=torch.bfloat16),)
"""
LAUNCHES_NOTHING = BENCH.replace("scale(x, 2.0)", "x * 2.0")


@pytest.fixture
def look(compiler: Compiler, tmp_path: Path) -> Callable[..., Looked]:
    """At a candidate that adds these files to a tree with this entry."""

    def looked(files: dict[str, str], bench: str = BENCH) -> Looked:
        tree = write_files(tmp_path / "tree", {"bench.py": bench})
        diff = make_diff(tree, files)
        write_files(tree, files)
        return Gate(compiler, ("gfx942", "gfx950")).look(tree, "bench.py", diff)

    return looked


def test_a_candidates_kernels_are_described_by_what_the_entry_launches(look: Callable[..., Looked]) -> None:
    found = look({"kernels.py": KERNEL, "notes.py": "triton = 'jit'\n", "broken.py": "def :"})
    assert (found.faults, found.not_looked_at) == ((), ())
    assert [line.partition(":")[0] for line in found.looked_at] == [
        "scale_kernel (kernels.py) on gfx942",
        "scale_kernel (kernels.py) on gfx950",
    ]
    assert set(found.evidence()) == {"looked_at"}


def test_a_candidate_whose_kernel_spills_has_a_fault(look: Callable[..., Looked]) -> None:
    found = look({"kernels.py": (KERNELS / "spilling.py").read_text()}, LAUNCHES_NOTHING)
    assert any("are spilled" in fault for fault in found.faults)


def test_a_kernel_that_nothing_describes_is_said_not_to_be_looked_at(look: Callable[..., Looked]) -> None:
    found = look({"kernels.py": KERNEL}, LAUNCHES_NOTHING)
    assert (found.faults, found.looked_at) == ((), ())
    (why,) = found.not_looked_at
    assert "it is not known what these are" in why


def test_a_candidate_without_a_kernel_needs_no_compiler(look: Callable[..., Looked]) -> None:
    assert look({"model.py": "import triton\n\ndef f():\n    pass\n"}) == Looked()
