"""Two sources that compile to one machine code are found out, and others differ in numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.isa.conftest import Compile, one, source_of
from tools.isa.compile import Compiled, Compiler, Source
from tools.isa.same_code import compare


def compiled_from(compiler: Compiler, path: Path, source: str) -> Compiled:
    path.write_text(source)
    return compiler.compile(Source(path), ["gfx942"]).results[0]


def test_names_comments_and_lines_make_no_difference(compiler: Compiler, tmp_path: Path, compiled: Compile) -> None:
    source = source_of("matmul")
    renamed = source.replace("def matmul", "def product").replace("sums", "acc")
    changed = renamed.replace("import triton\n", "\n\nimport triton\n", 1).replace("a += K", "a += K  # along the rows")
    other = compiled_from(compiler, tmp_path / "other.py", changed)
    found = compare(one(compiled("matmul"), "gfx942").assembly, other.assembly)
    assert found.same and found.told() == "the same machine code"


@pytest.mark.parametrize(
    ("before", "after", "counts", "told"),
    [
        ("= 1024", "= 2048", ("loads of 16 bytes", 0, 2), "loads of 16 bytes 0 and 2"),
        ("0.044715", "0.044716", None, "different: other instructions, in the same numbers"),
    ],
)
def test_another_block_and_another_constant_are_differences(
    before: str, after: str, counts: object, told: str, compiler: Compiler, tmp_path: Path, compiled: Compile
) -> None:
    source = source_of("elementwise").replace(before, after)
    other = compiled_from(compiler, tmp_path / "other.py", source)
    found = compare(one(compiled("elementwise"), "gfx942").assembly, other.assembly)
    assert not found.same and told in found.told()
    assert counts in found.counts if counts else not found.counts


def test_equal_instructions_with_other_waves_or_lds_are_not_the_same() -> None:
    code = "k:\n\ts_endpgm\n"
    assert compare(code, code, launch=((4, 0), (4, 0))).same
    assert not compare(code, code, launch=((4, 0), (8, 0))).same


def test_labels_count_by_where_they_are_and_not_by_name() -> None:
    first = ".LBB0_1:\n\ts_nop 0\n\ts_cbranch_scc1 .LBB0_1\n\ts_endpgm\n"
    assert compare(first, first.replace("LBB0_1", "LBB3_9")).same
    assert not compare(first, "\ts_nop 0\n.LBB0_1:\n\ts_cbranch_scc1 .LBB0_1\n\ts_endpgm\n").same
