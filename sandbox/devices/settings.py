"""How a GPU is set up by whoever owns the machine: its power cap, how its clocks are chosen.

Does not change any of it, or guess: what cannot be read is None. Sources: `power_dpm_force_performance_level` and
hwmon's `power1_cap` and `power1_cap_default` in µW of the amdgpu driver (docs.kernel.org, "GPU Power/Thermal Controls
and Monitoring"); `nvidia-smi` for NVIDIA's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandbox.devices import nvidia, sysfs
from sandbox.devices.record import Gpu


@dataclass(frozen=True)
class Settings:
    """`performance_level` is "auto" unless somebody chose the clocks; NVIDIA's driver does not tell."""

    performance_level: str | None = None
    power_cap_w: float | None = None
    power_cap_default_w: float | None = None
    most_mhz: float | None = None


def read(gpu: Gpu, root: Path = Path("/")) -> Settings:
    """`root` is another `/`, for tests."""
    if gpu.vendor == "amd":
        return _amd(root / "sys/bus/pci/devices" / gpu.pci)
    for cap, usual, most in nvidia.ask("power.limit", "power.default_limit", "clocks.max.sm", pci=gpu.pci):
        return Settings(power_cap_w=cap, power_cap_default_w=usual, most_mhz=most)
    return Settings()


def _amd(device: Path) -> Settings:
    caps: dict[str, float | None] = {}
    for name in ("power1_cap", "power1_cap_default"):
        found = [sysfs.text(monitor / name) for monitor in sorted((device / "hwmon").glob("hwmon*"))]
        microwatts = next((value for text in found if (value := sysfs.number(text))), None)
        caps[name] = None if microwatts is None else microwatts / 1e6
    levels = [line.partition(":")[2] for line in (sysfs.text(device / "pp_dpm_sclk") or "").splitlines()]
    clocks = [clock for text in levels if (clock := sysfs.number(text.lower().replace("mhz", "").replace("*", "")))]
    return Settings(
        performance_level=sysfs.text(device / "power_dpm_force_performance_level"),
        power_cap_w=caps["power1_cap"],
        power_cap_default_w=caps["power1_cap_default"],
        most_mhz=max(clocks, default=None),
    )
