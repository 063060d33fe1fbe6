"""A candidate's Triton kernels have no fault when they compile for every architecture and nothing spills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.isa.conftest import source_of
from tools.diff.patch import make_diff
from tools.isa.compile import Compiler
from tools.isa.gate import Gate, Looked

IMPORTS = "import triton\nimport triton.language as tl\n\n"
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


@pytest.mark.parametrize(
    ("kernels", "faults"),
    [
        (source_of("spilling"), ["are spilled", "bytes of scratch a lane"]),
        pytest.param(IMPORTS + HUGE, ["bytes of LDS, of which there are 65536"], marks=pytest.mark.slow),
        (IMPORTS + WRONG, ["wrong (kernels.py) on gfx950: it does not compile", "power of 2"]),
    ],
)
def test_a_kernel_that_cannot_run_well_is_a_fault(kernels: str, faults: list[str], look: Callable[..., Looked]) -> None:
    found = look({"kernels.py": kernels}, LAUNCHES_NOTHING)
    for said in faults:
        assert any(said in fault for fault in found.faults), found.faults


def test_a_kernel_that_nothing_describes_is_said_not_to_be_looked_at(look: Callable[..., Looked]) -> None:
    found = look({"kernels.py": KERNEL}, LAUNCHES_NOTHING)
    assert (found.faults, found.looked_at) == ((), ())
    (why,) = found.not_looked_at
    assert "it is not known what these are" in why


def test_a_candidate_without_a_kernel_needs_no_compiler(look: Callable[..., Looked]) -> None:
    assert look({"model.py": "import triton\n\ndef f():\n    pass\n"}) == Looked()
