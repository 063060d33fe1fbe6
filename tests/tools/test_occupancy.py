"""Occupancy by AMD's formula, with the worked examples of the project's facts and the tables of LLVM."""

from __future__ import annotations

import itertools

import pytest

from tools.hardware import ARCHITECTURES
from tools.occupancy import Need, Occupancy, occupancy


def found(architecture: str, vgprs: int, lds_bytes: int, waves: int, *, both_units: bool = False) -> Occupancy:
    return occupancy(ARCHITECTURES[architecture], Need(vgprs, lds_bytes, waves, both_units))


def test_170_registers_and_32_kib_leave_two_waves_of_eight() -> None:
    seen = found("gfx942", 170, 32768, 4)
    assert (seen.waves, seen.workgroups, seen.percent) == (2, 2, 25)
    assert seen.limits == ("registers", "LDS")


def test_fewer_registers_do_not_help_where_lds_limits() -> None:
    seen = found("gfx942", 168, 32768, 4)
    assert (seen.waves, seen.by_registers, seen.limits) == (2, 3, ("LDS",))
    assert seen.next_step() == "21504 LDS bytes instead of 32768: 3 waves instead of 2"


def test_on_gfx950_the_same_kernel_has_room_for_a_third_wave() -> None:
    seen = found("gfx950", 168, 32768, 4)
    assert (seen.waves, seen.limits) == (3, ("registers",))


def test_a_wave_is_lost_to_rounding_when_workgroups_have_eight() -> None:
    seen = found("gfx942", 168, 0, 8)
    assert (seen.waves, seen.workgroups) == (2, 1)
    assert "rounding" in seen.limit()


@pytest.mark.parametrize(("architecture", "waves"), [("gfx942", 2), ("gfx950", 4)])
def test_64_kib_of_lds_in_workgroups_of_eight(architecture: str, waves: int) -> None:
    assert found(architecture, 128, 65536, 8).waves == waves


def test_gfx950_hands_out_lds_in_larger_pieces() -> None:
    assert found("gfx950", 32, 32768, 4).by_lds == 4  # 160 KiB would hold five, were it not for the granule of 1280


def test_the_next_step_names_the_number_to_fall_to() -> None:
    assert found("gfx942", 136, 0, 4).next_step() == "128 registers instead of 136: 4 waves instead of 3"


def test_a_kernel_without_lds_is_not_limited_by_it() -> None:
    assert found("gfx942", 64, 0, 4).by_lds is None


def test_nothing_is_to_be_done_at_the_most_the_hardware_holds() -> None:
    seen = found("gfx942", 64, 0, 4)
    assert (seen.waves, seen.limit(), seen.next_step()) == (8, "hardware", "")


@pytest.mark.parametrize(("vgprs", "lds_bytes"), [(600, 0), (32, 70_000)])
def test_a_kernel_that_does_not_fit_has_no_waves_and_says_what_would_fit(vgprs: int, lds_bytes: int) -> None:
    seen = found("gfx942", vgprs, lds_bytes, 4)
    assert seen.waves == 0
    assert seen.next_step().endswith("1 wave instead of 0")


def test_few_large_workgroups_may_leave_less_than_a_wave_for_each_simd() -> None:
    assert found("gfx942", 32, 65536, 2).waves == 0.5


def test_a_work_group_processor_shares_its_lds_among_four_simds() -> None:
    assert found("gfx1100", 256, 32768, 4, both_units=True).waves == 4
    assert found("gfx1100", 256, 65536, 4, both_units=True).workgroups == 2
    assert found("gfx1100", 256, 65537, 4, both_units=True).workgroups == 0  # one alone has no more than 64 KiB


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_next_step_is_the_smallest_that_leads_to_the_waves_it_promises(architecture: str) -> None:
    for vgprs, lds_bytes, waves in itertools.product(
        (1, 63, 100, 129, 200, 256), (0, 1, 5000, 20_000, 65_536), (1, 2, 4, 8, 16)
    ):
        seen = found(architecture, vgprs, lds_bytes, waves)
        needed = {step.what: step.needed for step in seen.steps}

        def after(changed: dict[str, int], vgprs: int = vgprs, lds_bytes: int = lds_bytes, waves: int = waves) -> float:
            registers, lds = changed.get("registers", vgprs), changed.get("LDS bytes", lds_bytes)
            return found(architecture, registers, lds, waves).waves

        assert after(needed) >= seen.next_waves
        for what, number in needed.items():
            assert after({**needed, what: number + 1}) < seen.next_waves, (what, vgprs, lds_bytes, waves)
