"""Clock, power and temperature of the GPUs, read by the host from outside the workers.

Logged with every comparison; decisions do not use them. What cannot be read is None.
Sources: the kernel's hwmon files of the amdgpu driver (docs.kernel.org, "GPU Power/Thermal Controls and Monitoring":
freq1_input in Hz, power1_average or power1_input in µW, temp1_input in m°C); `nvidia-smi` for NVIDIA's driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from sandbox.devices import nvidia, sysfs

DRM = Path("/sys/class/drm")
AMD = "0x1002"


class DeviceState(BaseModel):
    """One GPU at one moment."""

    name: str
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


def read() -> list[DeviceState]:
    """All GPUs of the machine that say something of themselves."""
    return [*_amd(), *_nvidia()]


def _amd() -> Iterator[DeviceState]:
    for card in sorted(DRM.glob("card[0-9]*")):
        if "-" in card.name or sysfs.text(card / "device" / "vendor") != AMD:
            continue
        for hwmon in sorted((card / "device" / "hwmon").glob("hwmon*")):
            power_uw = _number(hwmon / "power1_average")
            yield DeviceState(
                name=card.name,
                clock_mhz=_scaled(_number(hwmon / "freq1_input"), 1e-6),
                power_w=_scaled(_number(hwmon / "power1_input") if power_uw is None else power_uw, 1e-6),
                temperature_c=_scaled(_number(hwmon / "temp1_input"), 1e-3),
            )


def _nvidia() -> Iterator[DeviceState]:
    for index, (clock, power, temperature) in enumerate(nvidia.ask("clocks.sm", "power.draw", "temperature.gpu")):
        yield DeviceState(name=f"nvidia{index}", clock_mhz=clock, power_w=power, temperature_c=temperature)


def _number(file: Path) -> float | None:
    return sysfs.number(sysfs.text(file))


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 3)
