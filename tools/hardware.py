"""The one table of devices (devices.toml): what their compute units hold, and what they can reach at best.

A device that is not in the table has only measured ceilings. AMD's figures are per device as a program sees it, so for
MI250 per die.

Sources:
    [A] AMD, "Accelerator and GPU hardware specifications" (ROCm documentation, reference/gpu-arch-specs): compute
        units, LDS, registers, caches, memory.
    [B] AMD, "GPU architecture" pages of MI100, MI250 and MI300 (ROCm documentation, conceptual/gpu-arch): peaks.
    [C] `device_info.py` of PyTorch 2.15 (`torch/_inductor/analysis`): peaks and bandwidth of MI250X, MI350X, MI355X.
    [D] LLVM, `getVGPRAllocGranule`, `getTotalNumVGPRs`, `getMaxWavesPerEU` and `getLdsDwGranularity` of
        AMDGPUBaseInfo.cpp: registers, waves, pieces of LDS.
    [E] NVIDIA, "H100 Tensor Core GPU" and "H200 Tensor Core GPU" datasheets: peaks without sparsity, bandwidth.
    [F] Taken from MI300X, whose compute units it has; AMD's page was not read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Registers:
    """The vector registers of one SIMD, in registers of one lane. Source: [D]."""

    total: int  # a wave that uses them all is alone on its SIMD
    granule: int  # they are handed out in multiples of this
    most_waves: int  # on one SIMD, however few registers they use
    accumulators_apart: bool = False  # as many again, which count for themselves

    def waves(self, used: int) -> int:
        """Waves that fit on a SIMD when each uses so many; the sum of both kinds unless those are apart.

        0 when one wave does not fit.
        """
        given = max(self.granule, -(-used // self.granule) * self.granule)
        return min(self.most_waves, self.total // given)


@dataclass(frozen=True)
class Architecture:
    """What all devices of one instruction set have in common. Sources: [A], [D]."""

    name: str  # as compilers call it: gfx942, sm_90
    registers: Registers
    lds_bytes: int  # local data share (shared memory) of one compute unit
    wave_size: int = 64
    simds: int = 4  # of one compute unit
    matrix: str = "mfma"  # how its matrix instructions are called
    lds_granule: int = 512  # bytes; LDS is handed out in multiples of it. Source: [D]


_CDNA = Registers(512, 8, 8)
_RDNA = Registers(1536, 24, 16)
ARCHITECTURES: Mapping[str, Architecture] = {
    each.name: each
    for each in (
        Architecture("gfx908", Registers(256, 4, 10, accumulators_apart=True), 64 << 10),
        Architecture("gfx90a", _CDNA, 64 << 10),
        Architecture("gfx942", _CDNA, 64 << 10),
        Architecture("gfx950", _CDNA, 160 << 10, lds_granule=1280),
        # a work-group processor of two compute units shares 128 KiB
        Architecture("gfx1100", _RDNA, 64 << 10, wave_size=32, simds=2, matrix="wmma"),
        Architecture("gfx1201", _RDNA, 64 << 10, wave_size=32, simds=2, matrix="wmma"),
    )
}


@dataclass(frozen=True)
class Device:
    """One device as a program sees it. Peaks are of dense products, in TFLOP/s by data type, at the highest clock."""

    name: str
    names: Sequence[str]  # what tells it from others of its architecture, in lower case
    architecture: str
    compute_units: int
    memory_gbps: float
    peak_tflops: Mapping[str, float]
    source: str
    dies: int = 1  # XCDs, among which workgroups are dealt out in turns


_TABLE = Path(__file__).with_name("devices.toml")
DEVICES = tuple(Device(**figures) for figures in tomllib.loads(_TABLE.read_text())["device"])
# Cards of the same name with fewer units, lower clocks or slower memory ([E] has columns of their own), and slices.
_OTHER_KINDS = frozenset({"pcie", "nvl", "mig"})


def find_device(name: str, architecture: str, compute_units: int | None = None) -> Device | None:
    """The device of this marketing name and architecture (`gcnArchName`, with or without its features).

    None when it is not in the table, or a slice of one, which has fewer units than the table says; the only one of its
    architecture serves where the name says nothing. Of several that the name fits, the one with so many units.
    """
    wanted = architecture.partition(":")[0]
    same = [device for device in DEVICES if device.architecture == wanted]
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    if words & _OTHER_KINDS:
        return None
    fitting = [device for device in same if words & set(device.names)] or (same if len(same) == 1 else [])
    if compute_units is not None:
        fitting = [device for device in fitting if device.compute_units <= compute_units]
        fitting.sort(key=lambda device: device.compute_units != compute_units)
    return fitting[0] if fitting else None


def find_architecture(name: str) -> Architecture | None:
    return ARCHITECTURES.get(name.partition(":")[0])
