"""Whether somebody else is at work on a GPU, from what its driver tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.devices import load
from sandbox.devices.load import Load
from sandbox.devices.record import Gpu
from tests.files import write_files
from tests.sandbox.devices import machines

PCI = "0000:c1:00.0"


def gpu(vendor: str) -> Gpu:
    return machines.gpu(vendor=vendor, pci=PCI, card=PCI)


def test_amds_driver_tells_in_files(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices" / PCI
    assert load.read(gpu("amd"), tmp_path) == Load()
    write_files(folder, {"gpu_busy_percent": "37\n", "mem_info_vram_used": f"{12 << 30}\n"})
    found = load.read(gpu("amd"), tmp_path)
    assert (found.busy_percent, found.memory_used_bytes, found.in_use) == (37.0, 12 << 30, True)
    assert str(found) == "37 % busy, 12.0 GiB of its memory taken"
    write_files(folder, {"gpu_busy_percent": "garbled", "mem_info_vram_used": f"{300 << 20}\n"})
    found = load.read(gpu("amd"), tmp_path)
    assert (found.busy_percent, found.in_use) == (None, False)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("echo 0, 4", Load(0.0, 4 << 20)),
        ("echo 99, 70000", Load(99.0, 70000 << 20)),
        ("echo '[N/A], [N/A]'", Load()),
        ("echo No devices were found; exit 6", Load()),
    ],
)
def test_nvidias_tool_is_asked(says: str, expected: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"nvidia-smi": f'#!/bin/sh\n[ "$1" = --id={PCI} ] && {says}\n'})
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert load.read(gpu("nvidia")) == expected


def test_a_machine_without_its_tool_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = load.read(gpu("nvidia"))
    assert not found.in_use and str(found) == "its load cannot be read"
