"""Occupancy is what registers, LDS and workgroup size allow; the examples are those of ROCm's documentation."""

from __future__ import annotations

import pytest

from tools.hardware import ARCHITECTURES
from tools.profiler.rocprof import occupancy


@pytest.mark.parametrize(
    ("architecture", "size", "registers", "accumulators", "lds", "waves", "limit"),
    [
        ("gfx942", 256, 128, 42, 32768, 2, "registers"),  # 170 registers: two waves, and two workgroups by LDS
        ("gfx942", 256, 168, 0, 32768, 2, "LDS"),  # three waves by registers change nothing
        ("gfx950", 256, 168, 0, 32768, 3, "registers"),  # 160 KiB hold five workgroups
        ("gfx942", 512, 168, 0, 0, 2, "workgroup size"),  # one of eight waves fits where twelve waves would
        ("gfx942", 512, 128, 0, 65536, 2, "LDS"),
        ("gfx950", 512, 128, 0, 65536, 4, "registers"),
        ("gfx942", 64, 32, 0, 0, 8, "nothing"),
        ("gfx90a", 256, 64, 64, 0, 4, "registers"),  # both kinds count together
        ("gfx908", 256, 64, 64, 0, 4, "registers"),  # each kind counts for itself
        ("gfx908", 256, 24, 128, 0, 2, "registers"),
        ("gfx1100", 256, 96, 0, 0, 16, "nothing"),
        ("gfx942", 1, 32, 0, 0, 8, "nothing"),
    ],
)
def test_waves_of_a_simd(
    architecture: str, size: int, registers: int, accumulators: int, lds: int, waves: float, limit: str
) -> None:
    found = occupancy.of(ARCHITECTURES[architecture], size, registers, accumulators, lds)
    assert found is not None
    assert (found.waves, found.limit) == (waves, limit)
    assert found.share == waves / ARCHITECTURES[architecture].registers.most_waves


@pytest.mark.parametrize(("size", "registers", "lds"), [(256, 600, 0), (256, 32, 70_000), (0, 32, 0), (4096, 32, 0)])
def test_what_does_not_fit_was_not_launched_so(size: int, registers: int, lds: int) -> None:
    assert occupancy.of(ARCHITECTURES["gfx942"], size, registers, 0, lds) is None
