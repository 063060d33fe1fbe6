"""How much of a GPU is in use before anything of ours runs there: by somebody who asks for no lock.

Refuses to guess: what cannot be read is None. Sources: `gpu_busy_percent` and `mem_info_vram_used` of the amdgpu driver
(docs.kernel.org, "GPU SysFS Miscellaneous" and "GPU Memory"); `nvidia-smi` for NVIDIA's.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.devices import sysfs
from sandbox.devices.record import Gpu

_NVIDIA_QUERY = ("--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits")
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
        return _load(sysfs.text(folder / "gpu_busy_percent"), sysfs.text(folder / "mem_info_vram_used"), 1)
    try:
        told = subprocess.run(
            ["nvidia-smi", f"--id={gpu.pci}", *_NVIDIA_QUERY], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return Load()
    busy, _, used = told.strip().partition(",")
    return _load(busy, used, 1 << 20)


def _load(busy: str | None, used: str | None, unit: int) -> Load:
    return Load(None if (share := _number(busy)) is None else float(share),
                None if (amount := _number(used)) is None else amount * unit)  # fmt: skip


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
