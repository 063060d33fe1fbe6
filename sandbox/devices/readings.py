"""What a GPU's driver tells of its present load and of its settings. None where it cannot be read.

Sources: `gpu_busy_percent`, `mem_info_vram_used`, `power_dpm_force_performance_level`, `pp_dpm_sclk`, and hwmon's
`power1_cap` and `power1_cap_default` in µW of the amdgpu driver (docs.kernel.org, "GPU SysFS Miscellaneous", "GPU
Memory", "GPU Power/Thermal Controls and Monitoring"); `nvidia-smi` for NVIDIA's. `root` is another `/`, for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sandbox.devices import nvidia, sysfs
from sandbox.devices.record import Gpu

_BUSY_PERCENT = 5.0
_TAKEN_BYTES = 2 << 30  # more than a driver keeps for itself


@dataclass(frozen=True)
class Load:
    """How much of a GPU is in use before anything of ours runs there, by programs that take no lock."""

    busy_percent: float | None = None
    memory_used_bytes: int | None = None

    @property
    def in_use(self) -> bool:
        """Whether timings would scatter, or there may be no room."""
        return (self.busy_percent or 0.0) > _BUSY_PERCENT or (self.memory_used_bytes or 0) > _TAKEN_BYTES

    def __str__(self) -> str:
        parts = []
        if self.busy_percent is not None:
            parts.append(f"{self.busy_percent:.0f} % busy")
        if self.memory_used_bytes is not None:
            parts.append(f"{self.memory_used_bytes / 2**30:.1f} GiB of its memory taken")
        return ", ".join(parts) or "its load cannot be read"


class GpuSettings(BaseModel):
    """How the administrator of the machine has set up one GPU."""

    model_config = ConfigDict(extra="forbid")

    name: str
    partition: str | None = None
    memory_partition: str | None = None
    performance_level: str | None = None
    """amdgpu's, "auto" unless the clocks were set by hand; NVIDIA's driver does not tell."""
    power_cap_w: float | None = None
    power_cap_default_w: float | None = None
    most_mhz: float | None = None


def load(gpu: Gpu, root: Path = Path("/")) -> Load:
    if gpu.vendor == "amd":
        busy, used = (_number(_folder(gpu, root) / name) for name in ("gpu_busy_percent", "mem_info_vram_used"))
        return Load(busy, None if used is None else int(used))
    for busy, used_mib in nvidia.ask("utilization.gpu", "memory.used", pci=gpu.pci):
        return Load(busy, None if used_mib is None else int(used_mib * 2**20))
    return Load()


def settings(gpu: Gpu, root: Path = Path("/")) -> GpuSettings:
    found = GpuSettings(
        name=f"GPU {gpu.index} ({gpu.name})", partition=gpu.partition, memory_partition=gpu.memory_partition
    )
    if gpu.vendor == "amd":
        folder = _folder(gpu, root)
        found.performance_level = sysfs.text(folder / "power_dpm_force_performance_level")
        found.power_cap_w, found.power_cap_default_w = (_cap_w(folder, n) for n in ("power1_cap", "power1_cap_default"))
        levels = (sysfs.text(folder / "pp_dpm_sclk") or "").lower().splitlines()  # such as "1: 2100Mhz *"
        clocks = (sysfs.number(level.partition(":")[2].strip(" *").removesuffix("mhz")) for level in levels)
        found.most_mhz = max((clock for clock in clocks if clock), default=None)
    elif rows := nvidia.ask("power.limit", "power.default_limit", "clocks.max.sm", pci=gpu.pci):
        found.power_cap_w, found.power_cap_default_w, found.most_mhz = rows[0]
    return found


def _folder(gpu: Gpu, root: Path) -> Path:
    return root / "sys/bus/pci/devices" / gpu.pci


def _number(file: Path) -> float | None:
    return sysfs.number(sysfs.text(file))


def _cap_w(folder: Path, name: str) -> float | None:
    found = (_number(monitor / name) for monitor in sorted((folder / "hwmon").glob("hwmon*")))
    return next((microwatts / 1e6 for microwatts in found if microwatts), None)
