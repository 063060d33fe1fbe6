"""The load and the settings of a GPU are read from its driver; what is absent or garbled is not known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.devices import readings
from sandbox.devices.readings import GpuSettings, Load
from tests.files import write_files
from tests.sandbox.devices import machines

PCI = "0000:c1:00.0"
AMD, NVIDIA = (machines.gpu(vendor=vendor, name="X", pci=PCI) for vendor in ("amd", "nvidia"))


def settings(**known: Any) -> GpuSettings:
    return GpuSettings(name="GPU 0 (X)", **known)


def test_amds_driver_tells_in_files(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices" / PCI
    assert readings.load(AMD, tmp_path) == Load() and readings.settings(AMD, tmp_path) == settings()
    write_files(
        folder,
        {
            "gpu_busy_percent": "37\n",
            "mem_info_vram_used": f"{12 << 30}\n",
            "power_dpm_force_performance_level": "manual\n",
            "pp_dpm_sclk": "0: 132Mhz\n1: 1500Mhz *\n2: 2100Mhz\n",
            "hwmon/hwmon3/power1_cap": "600000000\n",
            "hwmon/hwmon3/power1_cap_default": "750000000\n",
        },
    )
    assert readings.load(AMD, tmp_path) == Load(37.0, 12 << 30)
    given = {"performance_level": "manual", "power_cap_w": 600.0, "power_cap_default_w": 750.0, "most_mhz": 2100.0}
    assert readings.settings(AMD, tmp_path) == settings(**given)
    garbled = ("gpu_busy_percent", "pp_dpm_sclk", "hwmon/hwmon3/power1_cap", "hwmon/hwmon3/power1_cap_default")
    write_files(folder, dict.fromkeys(garbled, "???\n:\n"))
    assert readings.load(AMD, tmp_path) == Load(None, 12 << 30)
    assert readings.settings(AMD, tmp_path) == settings(performance_level="manual")


@pytest.mark.parametrize(
    ("says", "load", "known"),
    [
        ("0, 4, 0", Load(0.0, 4 << 20), {"power_cap_w": 0.0, "power_cap_default_w": 4.0, "most_mhz": 0.0}),
        ("[N/A], 70000, 1980", Load(None, 70000 << 20), {"power_cap_default_w": 70000.0, "most_mhz": 1980.0}),
        ("No devices were found", Load(), {}),
    ],
)
def test_nvidias_tool_is_asked_about_this_gpu(
    says: str, load: Load, known: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool answers with as many fields as it is asked for."""
    columns = 'n=$(echo "$2" | tr -cd , | wc -c); echo "$says" | cut -d, -f1-$((n + 1))'
    write_files(tmp_path, {"nvidia-smi": f'#!/bin/sh\nsays="{says}"\n[ "$1" = --id={PCI} ] && {columns}\n'})
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert readings.load(NVIDIA) == load
    assert readings.settings(NVIDIA) == settings(**known)
    monkeypatch.setenv("PATH", "/nowhere")  # without the tool nothing is known
    assert readings.load(NVIDIA) == Load() and readings.settings(NVIDIA) == settings()


@pytest.mark.parametrize(
    ("load", "in_use", "told"),
    [
        (Load(37.0, 12 << 30), True, "37 % busy, 12.0 GiB of its memory taken"),
        (Load(0.0, 3 << 30), True, "0 % busy, 3.0 GiB of its memory taken"),
        (Load(None, 300 << 20), False, "0.3 GiB of its memory taken"),
        (Load(), False, "its load cannot be read"),
    ],
)
def test_a_gpu_in_use_is_told_from_an_idle_one(load: Load, in_use: bool, told: str) -> None:
    assert (load.in_use, str(load)) == (in_use, told)
