"""The state of GPUs is read where it can be, and its absence stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.judging import device_state
from tools.judging.device_state import DeviceState


@pytest.fixture
def drm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(device_state, "DRM", tmp_path / "drm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "drm").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path / "drm"


def card(drm: Path, name: str, vendor: str, **files: str) -> None:
    hwmon = drm / name / "device" / "hwmon" / "hwmon3"
    hwmon.mkdir(parents=True)
    (drm / name / "device" / "vendor").write_text(f"{vendor}\n")
    for file, text in files.items():
        (hwmon / file).write_text(f"{text}\n")


def test_an_amd_card_is_read_from_the_kernels_files(drm: Path) -> None:
    card(drm, "card1", "0x1002", freq1_input="2100000000", power1_input="741000000", temp1_input="45000")
    (drm / "card1-DP-1").mkdir()
    assert device_state.read() == [DeviceState(name="card1", clock_mhz=2100, power_w=741, temperature_c=45)]


def test_older_drivers_tell_an_average_of_power(drm: Path) -> None:
    card(drm, "card0", "0x1002", power1_average="120000000", temp1_input="no reading")
    assert device_state.read() == [DeviceState(name="card0", power_w=120)]


def test_other_cards_and_machines_without_any_are_passed_over(drm: Path) -> None:
    card(drm, "card0", "0x8086", freq1_input="1")
    assert device_state.read() == []


def test_nvidias_tool_is_asked_where_it_is(drm: Path) -> None:
    tool = drm.parent / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '1980, 98.50, 31'\necho '1980, [N/A], 30'\n")
    tool.chmod(0o755)
    assert device_state.read() == [
        DeviceState(name="nvidia0", clock_mhz=1980, power_w=98.5, temperature_c=31),
        DeviceState(name="nvidia1", clock_mhz=1980, temperature_c=30),
    ]


def test_a_tool_that_fails_is_no_fault_of_the_run(drm: Path) -> None:
    tool = drm.parent / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'no driver, no device, none'\nexit 9\n")
    tool.chmod(0o755)
    assert device_state.read() == []
