"""Machine code is read as text: what it needs, what it does, and what of that is inside loops."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tools.isa.instructions import Counts, access, count, instructions, width
from tools.isa.machine_code import Narrow, read

METADATA = """
\t.amdhsa_kernel norm
\t\t.amdhsa_next_free_vgpr 140
\t\t.amdhsa_accum_offset 44
\t.end_amdhsa_kernel
; NumVgprs: 41
; NumAgprs: 96
\t.amdgpu_metadata
  - .agpr_count:     96
    .group_segment_fixed_size: 512
    .private_segment_fixed_size: 24
    .sgpr_count:     30
    .sgpr_spill_count: 2
    .vgpr_count:     140
    .vgpr_spill_count: 5
    .workgroup_processor_mode: 1
"""
LOOP = """
norm:
\t.file\t1 "/tmp" "k.py"
\t.loc\t1 7 5                          ; k.py:7:5
\tglobal_load_ushort v1, v0, s[0:1]
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\t.loc\t2 43 12                         ; standard.py:43:12 @[ k.py:9:23 ]
\tbuffer_load_ushort v1, v2, s[4:7], 0 offen
\tbuffer_load_dwordx4 v[0:3], v2, s[4:7], 0 offen
\ts_waitcnt vmcnt(0) lgkmcnt(0)
\tv_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
\ts_cbranch_scc1 .LBB0_1
\ts_endpgm
"""


def counted(*lines: str) -> Counts:
    return count(instructions([f"\t{line}" for line in lines]))


def test_registers_spills_and_sizes_are_those_of_the_metadata() -> None:
    code = read(METADATA)
    assert (code.kernel, code.vgprs, code.arch_vgprs, code.acc_vgprs, code.sgprs) == ("norm", 140, 41, 96, 30)
    assert (code.vgpr_spills, code.sgpr_spills, code.scratch_bytes, code.lds_bytes) == (5, 2, 24, 512)
    assert code.both_units and code.spills and code.given_vgprs == 140
    assert read(METADATA.replace("next_free_vgpr 140", "next_free_vgpr 169")).given_vgprs == 169
    assert read(METADATA + "; NumVGPRsForWavesPerEU: 257\n").given_vgprs == 257
    bare = "\n".join(line for line in METADATA.splitlines() if not line.startswith(";"))
    assert read(bare).arch_vgprs == 44  # by the offset of accumulators


def test_what_lies_in_loops_is_told_apart() -> None:
    code = read(LOOP)
    assert (code.loops, code.everywhere.instructions, code.in_loops.instructions) == (1, 7, 5)
    assert code.everywhere.loads == {16: 2, 128: 1}
    assert code.in_loops.loads == {16: 1, 128: 1}
    assert code.in_loops.matrix == {"mfma_f32_16x16x16_bf16": 1}
    assert code.narrow == (Narrow("k.py:7", 16, False, 1, False), Narrow("k.py:9", 16, False, 1, True))
    assert read(LOOP + '\t.section\t.debug_str,"MS"\n\ts_nop 0\n').everywhere.instructions == 7


WIDTHS = {
    ("loads", 128): "global_load_dwordx4 buffer_load_b128 ds_read_b128 ds_load_b128 ds_read2st64_b64 ds_load_2addr_b64 "
    "global_load_lds_dwordx4",
    ("loads", 96): "global_load_b96 buffer_load_dwordx3",
    ("loads", 64): "flat_load_dwordx2 ds_read2_b32 ds_read_b64_tr_b16",
    ("loads", 32): "global_load_b32",
    ("loads", 16): "global_load_ushort buffer_load_short_d16_hi global_load_d16_b16 buffer_load_u16 ds_read_u16 "
    "ds_read_u16_d16_hi",
    ("loads", 8): "global_load_sbyte buffer_load_u8",
    ("stores", 128): "ds_store_2addr_stride64_b64",
    ("stores", 64): "global_store_b64 ds_write2st64_b32",
    ("stores", 32): "buffer_store_dword",
    ("stores", 16): "ds_write_b16",
    ("stores", 8): "global_store_byte",
    ("", 32): "ds_add_u32",
    ("", 0): "global_atomic_add_f32",
}


def test_the_width_of_an_access_is_in_its_name() -> None:
    for (direction, bits), names in WIDTHS.items():
        for name in names.split():
            assert access(name) == direction and (not direction or width(name) == bits), name


def test_waits_for_everything_are_told_from_waits_for_some() -> None:
    drains = {
        (1, 0): ["s_waitcnt vmcnt(0)", "s_wait_loadcnt 0x0"],
        (0, 1): ["s_waitcnt lgkmcnt(0)", "s_wait_dscnt 0x0"],
        (1, 1): ["s_waitcnt vmcnt(0) lgkmcnt(0)", "s_wait_loadcnt_dscnt 0x0"],
        (0, 0): ["s_waitcnt vmcnt(10)", "s_wait_loadcnt 0x10", "s_wait_kmcnt 0x0"],
    }
    for expected, lines in drains.items():
        for line in lines:
            found = counted(line)
            assert (found.waits, found.drains, found.lds_drains) == (1, *expected), line
    assert counted("s_wait_alu depctr_va_vcc(0)", "s_waitcnt_depctr 0xfff").waits == 0


def test_spills_by_buffer_instructions_are_scratch() -> None:
    found = counted("buffer_store_dword v0, off, s[0:3], 0 ; 4-byte Folded Spill", "scratch_load_b32 v0, off, s32")
    assert found.scratch == 2 and not found.stores and not found.loads


def test_loads_straight_into_lds_moves_between_lanes_and_matrix_instructions_are_counted() -> None:
    found = counted(
        "buffer_load_dwordx4 v1, s[0:3], 0 offen lds",
        "ds_bpermute_b32 v0, v1, v2",
        "v_wmma_f32_16x16x16_bf16 v[0:7], v[8:11], v[12:15], v[0:7]",
        "v_mfma_f32_32x32x8bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]",
        "v_dot2c_f32_f16_e32 v0, v1, v2",
        "v_accvgpr_read_b32 v0, a0",
        "flat_load_dword v0, v[0:1]",
        "global_atomic_add_f32 v0, v1, s[0:1]",
        "ds_add_rtn_u32 v0, v1, v2",
    )
    assert (found.into_lds, found.lane_moves, found.dots, found.moves_of_accumulators) == (1, 1, 1, 1)
    assert found.matrix == {"wmma_f32_16x16x16_bf16": 1, "mfma_f32_32x32x8bf16_1k": 1}
    assert (found.flat, found.atomics) == (1, 2)


_LINES = ["\tglobal_load_", ".LBB0_1:", "\ts_branch .LBB0_1\n", ".vgpr_count: ", "\t.loc ", "; NumVgprs: x", "@[ "]
_SIGNS = ["9" * 30, "\n", "(", "\t.set .L.num_vgpr, ", "\x00", "é", "\tds_read", "vmcnt(0", "\t.section"]
PIECES = st.sampled_from([*_LINES, *_SIGNS])


@given(st.lists(PIECES | st.text(max_size=20), max_size=60).map("".join))
@settings(max_examples=300, deadline=None)
def test_whatever_the_text_is_reading_it_raises_nothing(text: str) -> None:
    code = read(text)
    assert code.vgprs >= 0 and code.in_loops.instructions <= code.everywhere.instructions


def test_a_text_that_is_made_to_be_slow_is_read_in_time_of_its_length() -> None:
    hostile = "\t.loc 1 ; " + "@[ " * 50_000 + "\n" + ("\ts_branch .LBB0_0\n.LBB0_0:\n" * 20_000) + "\t" * 100_000
    assert read(hostile).everywhere.instructions == 20_000
