"""The state of GPUs is read where it can be, and its absence stops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.files import write_files
from tools.judging import device_state
from tools.judging.device_state import DeviceState


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose kernel's files lie in `drm`, its programs in `bin`."""
    monkeypatch.setattr(device_state, "DRM", tmp_path / "drm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return write_files(tmp_path, {"drm/card9-DP-1/x": "", "bin/x": ""})


@pytest.mark.parametrize(
    ("vendor", "files", "found"),
    [
        (
            "0x1002",
            {"freq1_input": "2100000000", "power1_input": "741000000", "temp1_input": "45000"},
            [DeviceState(name="card1", clock_mhz=2100, power_w=741, temperature_c=45)],
        ),
        # older drivers tell an average of power
        (
            "0x1002",
            {"power1_average": "120000000", "temp1_input": "no reading"},
            [DeviceState(name="card1", power_w=120)],
        ),
        ("0x8086", {"freq1_input": "1"}, []),
    ],
)
def test_an_amd_card_is_read_from_the_kernels_files(machine: Path, vendor: str, files: Any, found: Any) -> None:
    card = {"vendor": vendor, **{f"hwmon/hwmon3/{name}": text for name, text in files.items()}}
    write_files(machine / "drm/card1/device", {name: f"{text}\n" for name, text in card.items()})
    assert device_state.read() == found


@pytest.mark.parametrize("fails", [False, True])
def test_nvidias_tool_is_asked_where_it_is_and_may_fail(machine: Path, fails: bool) -> None:
    said = "echo 'no driver, no device, none'\nexit 9" if fails else "echo '1980, 98.50, 31'\necho '1980, [N/A], 30'"
    write_files(machine, {"bin/nvidia-smi": f"#!/bin/sh\n{said}\n"})
    (machine / "bin/nvidia-smi").chmod(0o755)
    both = [
        DeviceState(name="nvidia0", clock_mhz=1980, power_w=98.5, temperature_c=31),
        DeviceState(name="nvidia1", clock_mhz=1980, temperature_c=30),
    ]
    assert device_state.read() == ([] if fails else both)
