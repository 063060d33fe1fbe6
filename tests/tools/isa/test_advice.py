"""Each piece of advice comes from numbers of the compiled code, names them, and stays away where there is no reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.isa.conftest import KERNELS, Compile, one, source_of
from tools.hardware import ARCHITECTURES
from tools.isa.advice import MOST, Advice, Facts, advise
from tools.isa.compile import Compiler, Source
from tools.isa.instructions import Counts
from tools.isa.layouts import Layouts
from tools.isa.machine_code import MachineCode
from tools.occupancy import Need, occupancy

pytestmark = pytest.mark.slow
LOADING = 1 + next(at for at, line in enumerate(KERNELS.read_text().splitlines()) if "at * stride + column" in line)


def facts(code: MachineCode, layouts: Layouts | None = None, *, lds_bytes: int = 0, num_stages: int = 2) -> Facts:
    known = ARCHITECTURES["gfx942"]
    seen = occupancy(known, Need(code.vgprs, lds_bytes, 4))
    return Facts(known, code, layouts or Layouts(), seen, lds_bytes, 4, num_stages)


def topics(found: tuple[Advice, ...]) -> list[str]:
    return [advice.topic for advice in found]


def test_scalar_loads_are_caught_with_their_number_and_line(compiled: Compile) -> None:
    for name in ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
        advice = one(compiled("scattered"), name).advice()[0]
        assert advice.topic == "coalescing"
        assert f"(kernels.py:{LOADING})" in advice.text
    text = one(compiled("scattered"), "gfx942").advice()[0].text
    assert "4 of 4 loads in loops move less than 4 bytes a lane" in text


def test_a_kernel_that_spills_is_caught_first(compiled: Compile) -> None:
    for each in compiled("spilling").results:
        advice = each.advice()[0]
        assert advice.topic == "spills"
        assert str(each.code.vgpr_spills) in advice.text and str(each.code.scratch_bytes) in advice.text


def test_small_blocks_that_make_narrow_loads_are_told_and_a_kernel_without_fault_gets_no_advice(
    compiled: Compile,
) -> None:
    advice = one(compiled("elementwise"), "gfx942").advice()
    assert topics(advice) == ["load width"] and "2 of 2 loads" in advice[0].text
    for name in ("rms_norm", "softmax"):
        assert one(compiled(name), "gfx942").advice() == ()


def test_the_order_of_programs_matters_where_there_are_several_dies(compiled: Compile) -> None:
    for architecture, told in (("gfx942", True), ("gfx950", True), ("gfx90a", False)):
        found = [each.text for each in one(compiled("matmul"), architecture).advice() if each.topic == "order"]
        assert bool(found) is told and all("8 dies" in text and "XCD-aware" in text for text in found)


def test_a_kernel_that_renumbers_its_programs_is_not_told_to(compiler: Compiler, tmp_path: Path) -> None:
    source = source_of("matmul")
    grouped = source.replace("tl.program_id(0) * M", "(tl.program_id(0) % 4 * 64 + tl.program_id(0) // 4) * M")
    for name, text, told in (("grouped", grouped, True), ("by_die", grouped.replace("% 4", "% 8"), False)):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        found = compiler.compile(Source(path), ["gfx942"]).results[0].advice()
        assert ("order" in topics(found)) is told, name


def test_narrow_reads_of_lds_are_to_be_padded(compiled: Compile) -> None:
    found = one(compiled("matmul"), "gfx90a")
    advice = next(each for each in found.advice() if each.topic == "LDS")
    reads = found.code.in_loops.lds_loads
    narrow = sum(count for bits, count in reads.items() if bits < 64)
    assert narrow and f"{narrow} of {sum(reads.values())} LDS reads in loops are narrower than b64" in advice.text
    assert "pad its LDS rows" in advice.text


def test_a_product_without_matrix_instructions_is_told() -> None:
    found = advise(facts(MachineCode(vgprs=64), Layouts(products=1)))
    assert topics(found) == ["matrix units"] and "no MFMA instruction" in found[0].text


def test_registers_just_above_a_step_are_a_case_for_waves_per_eu() -> None:
    assert "waves_per_eu=4" in advise(facts(MachineCode(vgprs=136)))[0].text
    assert advise(facts(MachineCode(vgprs=160))) == ()  # 128 is too far away
    assert advise(facts(MachineCode(vgprs=66))) == ()  # seven waves are plenty
    assert advise(facts(MachineCode(vgprs=136), lds_bytes=21504)) == ()  # LDS limits as well
    found = advise(facts(MachineCode(vgprs=64), lds_bytes=70_000))
    assert topics(found) == ["fit"] and "65536 LDS bytes instead of 70000" in found[0].text


def test_waits_atomics_and_flat_accesses_in_loops_are_told() -> None:
    inside = Counts(instructions=9, loads={128: 4}, drains=3, atomics=2, flat=1, matrix={"mfma_f32_16x16x16_f16": 4})
    code = MachineCode(vgprs=64, loops=1, everywhere=inside, in_loops=inside)
    found = advise(facts(code, Layouts(products=1, products_in_loops=1), num_stages=1))
    assert topics(found) == ["flat", "waits", "atomics"]
    assert "num_stages=1: try num_stages=2" in found[1].text


def test_the_list_stays_short() -> None:
    inside = Counts(
        instructions=99,
        loads={16: 40, 64: 60},
        lds_loads={16: 20},
        drains=3,
        atomics=2,
        flat=1,
        moves_of_accumulators=9,
        matrix={"mfma_f32_32x32x8_f16": 4},
    )
    code = MachineCode(vgprs=136, vgpr_spills=3, loops=1, everywhere=inside, in_loops=inside)
    layouts = Layouts(products=1, products_in_loops=1, programs=1, round_trips_in_loops=1)
    assert len(advise(facts(code, layouts, num_stages=1))) == MOST
