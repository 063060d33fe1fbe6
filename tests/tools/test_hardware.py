"""The table of devices: its figures agree with each other, and registers give the waves that compilers give."""

from __future__ import annotations

import pytest

from tools.hardware import ARCHITECTURES, DEVICES, find_architecture, find_device

# [LLVM, review D138443, and ROCm's table of registers and waves]
CDNA = "1:8 64:8 65:7 72:7 73:6 80:6 81:5 96:5 97:4 128:4 129:3 168:3 169:2 256:2 257:1 512:1 513:0"
GFX908 = "24:10 25:9 28:9 32:8 36:7 40:6 48:5 64:4 84:3 85:2 128:2 129:1"


@pytest.mark.parametrize(("arch", "table"), [("gfx90a", CDNA), ("gfx942", CDNA), ("gfx950", CDNA), ("gfx908", GFX908)])
def test_registers_decide_how_many_waves_fit(arch: str, table: str) -> None:
    for used, waves in (map(int, pair.split(":")) for pair in table.split()):
        assert ARCHITECTURES[arch].registers.waves(used) == waves, used


def test_figures_agree() -> None:
    for device in DEVICES:
        assert (device.source and device.architecture in ARCHITECTURES) or device.architecture.startswith("sm_")
        half, single, eight = (device.peak_tflops.get(dtype) for dtype in ("float16", "float32", "float8"))
        assert half is not None and single is not None and half > single
        assert eight is None or eight == pytest.approx(2 * half, rel=0.01)
    for arch in ("gfx908", "gfx90a", "gfx942", "gfx950"):
        found = ARCHITECTURES[arch]
        size = found.registers.total * found.wave_size * 4 * found.simds
        assert size == (256 << 10 if found.registers.accumulators_apart else 512 << 10)


@pytest.mark.parametrize(
    ("name", "arch", "units", "expected"),
    [
        ("AMD Instinct MI300X OAM", "gfx942", None, "AMD Instinct MI300X"),
        ("AMD Instinct MI325X", "gfx942:sramecc+:xnack-", None, "AMD Instinct MI325X"),
        ("AMD Instinct MI250X / MI250", "gfx90a", None, "AMD Instinct MI250 (one die)"),
        ("NVIDIA H200", "sm_90", None, "NVIDIA H200"),
        ("NVIDIA H100 80GB HBM3", "sm_90", None, "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "sm_90", None, None),
        ("NVIDIA H200 NVL", "sm_90", None, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm_90", None, None),
        ("", "gfx908", None, "AMD Instinct MI100"),
        ("AMD Radeon Graphics", "gfx942", None, None),
        ("AMD Radeon RX 7900 XTX", "gfx1100", None, None),
        # so many compute units tell which one it is, and that it is whole
        ("AMD Instinct MI250X / MI250", "gfx90a", 104, "AMD Instinct MI250 (one die)"),
        ("AMD Instinct MI250X / MI250", "gfx90a", 110, "AMD Instinct MI250X (one die)"),
        ("AMD Instinct MI300X", "gfx942", 304, "AMD Instinct MI300X"),
        ("AMD Instinct MI300X", "gfx942", 38, None),  # one of its eight partitions
        ("", "gfx908", 60, None),
    ],
)
def test_a_device_is_found_by_what_is_known(name: str, arch: str, units: int | None, expected: str | None) -> None:
    found = find_device(name, arch, units)
    assert (found.name if found else None) == expected


def test_an_architecture_is_known_by_its_name() -> None:
    found = find_architecture("gfx950:sramecc+")
    assert found is not None and found.lds_bytes == 163840
    assert find_architecture("gfx1030") is None
