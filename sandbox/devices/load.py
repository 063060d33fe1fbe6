"""How much of a GPU is in use before anything of ours runs there: by somebody who asks for no lock.

Does not guess: what cannot be read is None. Sources: `gpu_busy_percent` and `mem_info_vram_used` of the amdgpu driver
(docs.kernel.org, "GPU SysFS Miscellaneous" and "GPU Memory"); `nvidia-smi` for NVIDIA's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandbox.devices import nvidia, sysfs
from sandbox.devices.record import Gpu

_BUSY_PERCENT = 5.0
_TAKEN_BYTES = 2 << 30  # more than a driver keeps for itself


@dataclass(frozen=True)
class Load:
    busy_percent: float | None = None
    memory_used_bytes: int | None = None

    @property
    def in_use(self) -> bool:
        """Whether somebody is at work there, so that timings would scatter, or there may be no room."""
        return (self.busy_percent or 0.0) > _BUSY_PERCENT or (self.memory_used_bytes or 0) > _TAKEN_BYTES

    def __str__(self) -> str:
        parts = []
        if self.busy_percent is not None:
            parts.append(f"{self.busy_percent:.0f} % busy")
        if self.memory_used_bytes is not None:
            parts.append(f"{self.memory_used_bytes / 2**30:.1f} GiB of its memory taken")
        return ", ".join(parts) or "its load cannot be read"


def read(gpu: Gpu, root: Path = Path("/")) -> Load:
    """`root` is another `/`, for tests."""
    if gpu.vendor == "amd":
        folder = root / "sys/bus/pci/devices" / gpu.pci
        return _load(*(sysfs.number(sysfs.text(folder / name)) for name in ("gpu_busy_percent", "mem_info_vram_used")))
    for busy, used_mib in nvidia.ask("utilization.gpu", "memory.used", pci=gpu.pci):
        return _load(busy, None if used_mib is None else used_mib * 2**20)
    return Load()


def _load(busy: float | None, used_bytes: float | None) -> Load:
    return Load(busy, None if used_bytes is None else int(used_bytes))
