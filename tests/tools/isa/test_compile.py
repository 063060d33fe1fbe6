"""Kernels compile for six AMD architectures on a machine without any GPU, and what comes back is the compiler's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.reporting import isa_page
from tests.tools.isa.conftest import ASSETS, KERNELS, SOURCES, Compile, one
from tools.errors import KernelNotCompiled
from tools.isa.compile import Compilations, Compiler, Source

ADD = """
@triton.jit
def add(x_ptr: "*fp32", n: "i32:16", BLOCK: tl.constexpr = 256):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)
"""
File = Callable[..., Path]


def refused(compiler: Compiler, path: Path, **given: object) -> tuple[str, str]:
    """The kind, and what a person is told."""
    refusal = compiler.compile(replace(Source(path), **given), ["gfx942"]).refusal  # type: ignore[arg-type]
    assert refusal is not None
    error = refusal.error(path.name)
    return refusal.kind, f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "spilling" else []) for name in SOURCES]
)
def test_a_kernel_compiles_for_every_architecture_with_the_waves_that_llvm_counts(name: str, compiled: Compile) -> None:
    for each in compiled(name).results:
        assert not each.error
        assert each.code.vgprs > 0
        assert each.code.everywhere.instructions > 10
        assert each.code.everywhere.stores or each.code.everywhere.atomics
        assert f"hip:{each.architecture.name}" in each.ttgir
        told = re.search(r"^; Occupancy: (\d+)", each.assembly, re.MULTILINE)
        assert told is not None
        assert each.architecture.registers.waves(each.code.given_vgprs) == int(told[1]), each.architecture.name
        if SOURCES[name].file.parent == ASSETS:  # ours spill nowhere
            assert not each.code.spills and not each.code.scratch_bytes, each.architecture.name


def test_a_kernel_that_asks_for_few_waves_has_no_more(compiled: Compile) -> None:
    asked, plain = (one(compiled(name), "gfx942") for name in ("elementwise of few waves", "elementwise"))
    assert (asked.occupancy.waves, plain.occupancy.waves) == (2, 8)
    assert asked.code.given_vgprs == 169 > asked.code.vgprs
    assert any("given 169 registers" in each.text for each in asked.advice())
    page = " ".join(" ".join(isa_page.lines(Compilations((asked,)))).split())
    assert "padded to 169 by waves_per_eu=2" in page


def test_products_use_the_matrix_units_of_each_architecture(compiled: Compile) -> None:
    for each in compiled("matmul").results:
        used = each.code.everywhere.matrix
        assert used and all(instruction.startswith(each.architecture.matrix) for instruction in used)
        assert each.code.in_loops.matrix and each.layouts.products_in_loops


def test_on_unified_files_the_count_in_the_metadata_is_that_of_both_kinds(compiled: Compile) -> None:
    code = one(compiled("spilling"), "gfx942").code
    assert code.acc_vgprs > 0
    assert code.vgprs == (code.arch_vgprs + 3) // 4 * 4 + code.acc_vgprs


def test_the_width_of_loads_follows_from_the_elements_of_a_lane(compiled: Compile) -> None:
    # 1024 elements of 16 bits for 256 lanes, 4096 for 512, 4096 for 256
    for name, bits in {"elementwise": 64, "rms_norm": 128, "softmax": 128}.items():
        found = one(compiled(name), "gfx942")
        assert set(found.code.everywhere.loads) == {bits}, name
        assert {access.bits for access in found.layouts.accesses if not access.store} == {bits}, name


def test_atomics_loops_and_ways_through_lds_are_seen(compiled: Compile) -> None:
    for each in compiled("histogram").results:
        assert each.code.in_loops.atomics and each.code.loops >= 1
    for each in compiled("transpose").results:
        assert each.lds_bytes and each.layouts.round_trips and each.code.everywhere.lds_loads
    for each in compiled("elementwise").results:
        assert not each.code.loops and not each.lds_bytes and not each.layouts.round_trips


def test_the_first_configuration_of_an_autotuner_is_taken_or_all(compiled: Compile, compiler: Compiler) -> None:
    variant = one(compiled("tuned"), "gfx942").variant
    assert variant.config == "configuration 1: ROWS=1, num_warps=1, num_stages=3"
    assert variant.constants["BLOCK"] == "1024"  # a heuristic, of the default of `columns`
    assert variant.notes == ["the first of 2 autotuning configurations"]
    found = compiler.compile(Source(KERNELS, "tuned", every_config=True), ["gfx942"])
    assert [each.outcome.num_warps for each in found.results] == [1, 4]


def test_a_helper_is_no_kernel_and_several_kernels_are_told_apart(compiler: Compiler, kernel_file: File) -> None:
    helped = "@triton.jit\ndef more(x):\n    return x + 1\n" + ADD.replace(
        "tl.load(x_ptr + at, mask=at < n) + 1", "more(tl.load(x_ptr + at, mask=at < n))"
    )
    found = compiler.compile(Source(kernel_file(helped)), ["gfx942"])
    assert [(each.variant.kernel, each.error) for each in found.results] == [("add", "")]
    several = kernel_file(ADD + ADD.replace("def add", "def also"), "several.py")
    assert refused(compiler, several)[0] == "several_kernels"
    every = compiler.compile(Source(several, every_kernel=True), ["gfx942"])
    assert [each.variant.kernel for each in every.results] == ["add", "also"]


def test_what_is_missing_is_said_by_name(compiler: Compiler, kernel_file: File) -> None:
    kind, said = refused(compiler, kernel_file(ADD), kernel="sub")
    assert kind == "no_such_kernel" and "no kernel sub; it holds add" in said
    kind, said = refused(compiler, kernel_file(ADD), signature={"signature": {"y_ptr": "*fp32"}})
    assert kind == "bad_signature" and "y_ptr" in said


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('not today')", "RuntimeError: not today (line 4)"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import os\nos.abort()", "signal 6"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why(compiler: Compiler, kernel_file: File, source: str, says: str) -> None:
    kind, said = refused(compiler, kernel_file(source))
    assert kind == ("died" if "abort" in source else "not_loadable") and says in said


CRASHES = """
import os
real = triton.compile
def crashing(source, target, options):
    if target.arch == "gfx90a":
        os.abort()
    return real(source, target=target, options=options)
triton.compile = crashing
"""


def test_a_crash_for_one_architecture_leaves_the_others(compiler: Compiler, kernel_file: File) -> None:
    found = compiler.compile(Source(kernel_file(ADD + CRASHES)), ["gfx908", "gfx90a", "gfx942"])
    errors = {each.architecture.name: each.error for each in found.results}
    assert "signal 6" in errors.pop("gfx90a")
    assert errors == {"gfx908": "", "gfx942": ""}


@pytest.mark.slow
def test_a_compiler_that_does_not_come_to_an_end_is_ended(compiler: Compiler, kernel_file: File) -> None:
    path = kernel_file(ADD + CRASHES.replace("os.abort()", "__import__('time').sleep(1000)"))
    found = replace(compiler, compile_s=6.0).compile(Source(path), ["gfx90a", "gfx942"])
    assert ["too long" in each.error for each in found.results] == [True, False]


def test_a_kernel_may_import_what_lies_beside_it_and_its_package(compiler: Compiler, kernel_file: File) -> None:
    kernel_file("BLOCK = 512", "pack/sizes.py")
    kernel_file("", "pack/__init__.py")
    path = kernel_file("from . import sizes\nSIZE = tl.constexpr(sizes.BLOCK)\n" + ADD, "pack/kernels.py")
    assert not compiler.compile(Source(path), ["gfx942"]).results[0].error


def test_nobodys_own_cache_is_read_or_written(
    compiler: Compiler, kernel_file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    assert not compiler.compile(Source(kernel_file(ADD)), ["gfx942"]).results[0].error
    assert not (tmp_path / "home").exists() and not (tmp_path / "cache").exists()


def test_a_large_folder_is_not_copied(compiler: Compiler, kernel_file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.isa.sources.MOST_BYTES", 10)
    with pytest.raises(KernelNotCompiled, match="more Python than is copied"):
        compiler.compile(Source(kernel_file(ADD)), ["gfx942"])
