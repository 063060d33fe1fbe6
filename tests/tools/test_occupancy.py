"""Occupancy by AMD's formula, with the worked examples of the project's facts and the tables of LLVM."""

from __future__ import annotations

import itertools

import pytest

from tools.hardware import ARCHITECTURES
from tools.occupancy import Need, Occupancy, occupancy


def found(architecture: str, vgprs: int, lds_bytes: int, waves: int, *, both_units: bool = False) -> Occupancy:
    return occupancy(ARCHITECTURES[architecture], Need(vgprs, lds_bytes, waves, both_units))


@pytest.mark.parametrize(
    ("architecture", "vgprs", "lds_bytes", "waves", "held", "limit", "step"),
    [
        # worked examples of AMD's guide: 170 registers and 32 KiB leave two waves of eight
        ("gfx942", 170, 32768, 4, 2, "registers and LDS", "168 registers instead of 170 and 21504 LDS bytes"),
        ("gfx942", 168, 32768, 4, 2, "LDS", "21504 LDS bytes instead of 32768: 3 waves instead of 2"),
        ("gfx950", 168, 32768, 4, 3, "registers", "128 registers instead of 168"),
        ("gfx942", 168, 0, 8, 2, "registers and rounding to whole workgroups", "128 registers instead of 168"),
        ("gfx942", 136, 0, 4, 3, "registers", "128 registers instead of 136: 4 waves instead of 3"),
        ("gfx942", 128, 65536, 8, 2, "LDS", ""),
        ("gfx950", 128, 65536, 8, 4, "registers and LDS", ""),
        ("gfx950", 32, 32768, 4, 4, "LDS", ""),  # 160 KiB would hold five, were it not for the granule of 1280
        ("gfx942", 64, 0, 4, 8, "hardware", ""),
        ("gfx942", 600, 0, 4, 0, "registers", "512 registers instead of 600: 1 wave instead of 0"),
        ("gfx942", 32, 70_000, 4, 0, "LDS", "65536 LDS bytes instead of 70000: 1 wave instead of 0"),
        ("gfx942", 32, 65536, 2, 0.5, "LDS", ""),  # few large workgroups leave SIMDs empty
    ],
)
def test_registers_and_lds_limit_the_waves(
    architecture: str, vgprs: int, lds_bytes: int, waves: int, held: float, limit: str, step: str
) -> None:
    seen = found(architecture, vgprs, lds_bytes, waves)
    assert (seen.waves, seen.limit()) == (held, limit)
    assert seen.next_step().startswith(step) if held < seen.most else seen.next_step() == ""


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
