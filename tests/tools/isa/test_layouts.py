"""Triton's GPU IR tells how wide loads are laid out, and what goes through LDS."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.isa.conftest import Compile, one
from tools.isa.layouts import bits_of, read

IR = """
#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#columns = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 8], warpsPerCTA = [4, 1], order = [0, 1]}>
#shared = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]}>
#shared1 = #ttg.swizzled_shared<{vec = 4, perPhase = 1, maxPhase = 16, order = [1, 0]}>
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%x: !tt.ptr<bf16>) {
    %p = tt.get_program_id x : i32 loc(#loc1)
    %0 = tt.load %a, %m : tensor<128x64x!tt.ptr<bf16>, #blocked> loc(#loc1)
    %1 = tt.load %s : !tt.ptr<f32> loc(#loc1)
    %2:2 = scf.for %i = %c0 to %n step %c1 iter_args(%t = %u) -> (tensor<128x64xbf16, #blocked>, i32)  : i32 {
      %3 = amdg.buffer_load %x[%o] {contiguity = 2 : i32} : !tt.ptr<bf16> -> tensor<128x64xbf16, #columns> loc(#loc2)
      %4 = ttg.convert_layout %3 : tensor<128x64xbf16, #columns> -> tensor<128x64xbf16, #blocked> loc(#loc2)
      %5 = amdg.buffer_load_to_local %x[%o] into %l {contiguity = 8 : i32} : !tt.ptr<bf16>[tensor<8x8xi32, #blocked>]
      %6 = scf.if %c -> (tensor<8x8xf32, #mma>) {
        %7 = tt.dot %d, %e, %f : tensor<8x8xbf16> * tensor<8x8xbf16> -> tensor<8x8xf32, #mma> loc(#loc2)
      } else {
      } loc(#loc2)
      scf.yield %6 : i32 loc(#loc2)
    } loc(#loc2)
    %8 = "tt.reduce"(%4) <{axis = 0 : i32}> ({
    ^bb0(%9: f32 loc(#loc3), %10: f32 loc(#loc3)):
      tt.reduce.return %9 : f32 loc(#loc3)
    }) : (tensor<4096xf32, #blocked>) -> f32 loc(#loc3)
    %11 = ttg.convert_layout %8 : tensor<8x8xf32, #mma> -> tensor<8x8xf32, #blocked> loc(#loc3)
    tt.store %q, %11 : tensor<8x8x!tt.ptr<f32>, #columns> loc(#loc3)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""


def test_the_bits_of_a_lane_follow_from_layout_and_what_is_known_of_neighbours() -> None:
    found = [(access.store, access.bits, access.in_loop) for access in read(IR, lds_bytes=64).accesses]
    assert found == [(False, 128, False), (False, 32, True), (False, 128, True), (True, 32, False)]


def test_changes_of_layout_and_products_are_counted_inside_loops_and_out() -> None:
    found = read(IR, lds_bytes=64)
    assert (found.conversions, found.conversions_in_loops) == (2, 1)
    assert (found.round_trips, found.round_trips_in_loops) == (2, 1)
    assert (found.products, found.products_in_loops, found.reductions, found.programs) == (1, 1, 1, 1)
    assert found.plain_shared == 1
    found = read(IR, lds_bytes=0)  # without LDS nothing goes through it
    assert (found.conversions, found.round_trips) == (2, 0)


def test_element_types_have_their_bits() -> None:
    assert [bits_of(name) for name in ("bf16", "f32", "i1", "f8E4M3FN", "ui8", "ptr", "")] == [16, 32, 1, 8, 8, 0, 0]


def test_loads_of_a_column_are_one_element_wide(compiled: Compile) -> None:
    access = next(each for each in one(compiled("scattered"), "gfx942").layouts.accesses if not each.store)
    assert (access.bits, access.element_bits, access.in_loop) == (16, 16, True)


_OPENING = ["#a = #ttg.blocked<{", "{", "scf.for", "%1 = tt.load", " : tensor<", "!tt.ptr<", "} else {", "("]
PIECES = st.sampled_from([*_OPENING, "order = [9]", "}", "\n", "8x" * 30, "contiguity = 99999"])


@given(st.lists(PIECES | st.text(max_size=20), max_size=60).map("".join))
@settings(max_examples=300, deadline=None)
def test_whatever_the_text_is_reading_it_raises_nothing(text: str) -> None:
    assert read(text, lds_bytes=1).conversions >= 0
