"""What the owner of a machine has set is read off the kernel's files; what is not there or garbled is not known."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sandbox.devices import settings
from sandbox.devices.gpus import find_gpus
from sandbox.devices.settings import Settings
from tests.files import write_files
from tests.sandbox.devices.machines import gpu, one_mi210

NVIDIA = gpu(vendor="nvidia", pci="0000:01:00.0", card="0000:01:00.0")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    one_mi210(tmp_path)
    (found,) = find_gpus(tmp_path).gpus
    return tmp_path / "sys/bus/pci/devices" / found.pci


def read(root: Path) -> Settings:
    (found,) = find_gpus(root).gpus
    return settings.read(found, root)


def test_of_an_amd_gpu(device: Path, tmp_path: Path) -> None:
    write_files(
        device,
        {
            "power_dpm_force_performance_level": "manual\n",
            "pp_dpm_sclk": "0: 132Mhz\n1: 1500Mhz *\n2: 2100Mhz\n",
            "hwmon/hwmon3/power1_cap": "600000000\n",
            "hwmon/hwmon3/power1_cap_default": "750000000\n",
        },
    )
    assert read(tmp_path) == Settings("manual", 600.0, 750.0, 2100.0)


def test_what_is_not_there_or_makes_no_sense_is_not_known(device: Path, tmp_path: Path) -> None:
    assert read(tmp_path) == Settings()
    write_files(device, {"pp_dpm_sclk": "???\n:\n", "hwmon/hwmon3/power1_cap": "lots\n"})
    assert read(tmp_path) == Settings()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("700.00, 700.00, 1980\n", Settings(None, 700.0, 700.0, 1980.0)),
        ("[N/A], 700.00, 1980\n", Settings(None, None, 700.0, 1980.0)),
        ("No devices were found\n", Settings()),
    ],
)
def test_of_an_nvidia_gpu(said: str, found: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write_files(tmp_path, {"nvidia-smi": f"#!/bin/sh\nprintf '{said}'\n"}) / "nvidia-smi"
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert settings.read(NVIDIA) == found
