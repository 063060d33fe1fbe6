"""How many waves of a kernel fit on a SIMD at once, and what keeps it from being more.

Refuses to say what occupancy a kernel reached: that also depends on how many workgroups there are. Leaves out the
limits on scalar registers, on barriers and on workgroups of a compute unit, which bind rarely.

Source of the formula: ROCm documentation, "Optimizing Triton kernels", with the LDS of the architecture instead of
64 KiB. Registers and LDS per architecture are those of `tools/hardware.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tools.hardware import Architecture

Limit = Literal["nothing", "registers", "LDS", "workgroup size"]


@dataclass(frozen=True)
class Occupancy:
    waves: float  # on a SIMD, on average over those of a compute unit
    share: float  # of the most that it holds
    limit: Limit


def of(architecture: Architecture, workgroup_size: int, registers: int, accumulators: int, lds_bytes: int
       ) -> Occupancy | None:  # fmt: skip
    """`registers` are the architectural ones. None for what does not fit, and therefore was not launched like this."""
    if workgroup_size <= 0:
        return None
    held = architecture.registers
    by_registers = (
        min(held.waves(registers), held.waves(accumulators))
        if held.accumulators_apart
        else held.waves(registers + accumulators)
    )
    waves = -(-workgroup_size // architecture.wave_size)  # of one workgroup
    fit_registers = by_registers * architecture.simds // waves
    fit_lds = architecture.lds_bytes // lds_bytes if lds_bytes else fit_registers
    workgroups = min(fit_registers, fit_lds)
    if workgroups == 0:
        return None
    found = workgroups * waves / architecture.simds
    limit: Limit = "nothing"
    if found < held.most_waves:
        if fit_lds < fit_registers:
            limit = "LDS"
        elif by_registers < held.most_waves and by_registers - found < 1:
            limit = "registers"
        else:
            limit = "workgroup size"
    return Occupancy(found, found / held.most_waves, limit)
