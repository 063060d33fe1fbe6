"""How a GPU is set up by whoever owns the machine: its power cap, how its clocks are chosen.

Refuses to change any of it, and to guess: what cannot be read is None. Sources: `power_dpm_force_performance_level` and
hwmon's `power1_cap` and `power1_cap_default` in µW of the amdgpu driver (docs.kernel.org, "GPU Power/Thermal Controls
and Monitoring"); `nvidia-smi` for NVIDIA's.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.devices import sysfs
from sandbox.devices.record import Gpu

_NVIDIA_QUERY = ("--query-gpu=power.limit,power.default_limit,clocks.max.sm", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Settings:
    """`performance_level` is "auto" unless somebody chose the clocks; NVIDIA's driver does not tell."""

    performance_level: str | None = None
    power_cap_w: float | None = None
    power_cap_default_w: float | None = None
    most_mhz: float | None = None


def read(gpu: Gpu, root: Path = Path("/")) -> Settings:
    """`root` is another `/`, for tests."""
    return _amd(root / "sys/bus/pci/devices" / gpu.pci) if gpu.vendor == "amd" else _nvidia(gpu.pci)


def _amd(device: Path) -> Settings:
    caps: dict[str, float | None] = {}
    for name in ("power1_cap", "power1_cap_default"):
        found = [sysfs.text(monitor / name) for monitor in sorted((device / "hwmon").glob("hwmon*"))]
        microwatts = next((value for text in found if (value := _number(text))), None)
        caps[name] = None if microwatts is None else microwatts / 1e6
    levels = [line.partition(":")[2] for line in (sysfs.text(device / "pp_dpm_sclk") or "").splitlines()]
    clocks = [clock for text in levels if (clock := _number(text.lower().replace("mhz", "").replace("*", "")))]
    return Settings(
        performance_level=sysfs.text(device / "power_dpm_force_performance_level"),
        power_cap_w=caps["power1_cap"],
        power_cap_default_w=caps["power1_cap_default"],
        most_mhz=max(clocks, default=None),
    )


def _nvidia(pci: str) -> Settings:
    try:
        told = subprocess.run(
            ["nvidia-smi", f"--id={pci}", *_NVIDIA_QUERY], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return Settings()
    parts = [_number(part) for part in told.strip().split(",")]
    cap, usual, most = parts if len(parts) == 3 else (None, None, None)
    return Settings(power_cap_w=cap, power_cap_default_w=usual, most_mhz=most)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
