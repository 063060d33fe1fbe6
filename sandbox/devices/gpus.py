"""Find the GPUs of this machine from the kernel alone, and say what a process needs to use exactly one of them.

Does not open a device, start a tool or import torch; what cannot be read is a note, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.devices import kfd, nvidia, sysfs
from sandbox.devices.record import Found, Gpu
from sandbox.errors import NoSuchGpu

_HIDING = """
CUDA_DEVICE_ORDER CUDA_VISIBLE_DEVICES
GPU_DEVICE_ORDINAL HIP_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
"""
HIDING_VARIABLES = frozenset(_HIDING.split())
"""Variables that hide or renumber devices. What `visible_environment` gives is right only without all others."""


def find_gpus(root: Path = Path("/")) -> Found:
    """AMD's GPUs, then NVIDIA's, each by index. `root` is another `/`, for tests."""
    amd, other = kfd.find(root), nvidia.find(root)
    return Found(amd.gpus + other.gpus, amd.notes + other.notes)


def visible_environment(gpu: Gpu, *, alone: bool = False) -> dict[str, str]:
    """What a process must have set to use this GPU only, as its device 0.

    `alone` is a process that got no nodes but `gpu.devices`, as in a container: for it the device is number 0
    whatever its number outside, because AMD's runtime leaves out GPUs whose render node it cannot find
    (`topology_sysfs_check_node_supported` in libhsakmt), and NVIDIA's those without their node.

    ROCR_VISIBLE_DEVICES must be unset: the lower runtime reads it first and numbers again what it leaves, and HIP reads
    its own variable against the new numbers, so index 3 in both leaves nothing. HIP takes CUDA_VISIBLE_DEVICES only
    where HIP_VISIBLE_DEVICES is not set, and PyTorch counts devices by the same rules. (ROCm documentation, "GPU
    isolation techniques" and "HIP environment variables"; `Device::init` of `rocdevice.cpp` in ROCm/clr;
    `_parse_visible_devices` in torch.cuda.) ROCm recommends ROCR_VISIBLE_DEVICES on Linux; HIP's is taken because a
    PyTorch without pull request 142292 (end of 2024) counts devices without looking at the other. These variables are
    no boundary, since a process may change them: a sandbox has to limit `gpu.devices`.

    Without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA numbers the fastest device first ("CUDA Environment Variables", CUDA C++
    Programming Guide).
    """
    number = "0" if alone else str(gpu.index)
    if gpu.vendor == "amd":
        return {"HIP_VISIBLE_DEVICES": number}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": number}


def first_visible(environment: Mapping[str, str]) -> int:
    """The number of the first GPU that these variables leave visible; 0 where they hide none, or speak of ids."""
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        first = environment.get(name, "").partition(",")[0].strip()
        if first.isdigit():
            return int(first)
    return 0


def choose_gpu(number: int | None, environment: Mapping[str, str]) -> Gpu | None:
    """The GPU of this number; where none is asked for the first that the environment leaves visible, None without any.

    Raises: NoSuchGpu.
    """
    usable = [gpu for gpu in find_gpus().gpus if gpu.accessible]
    if number is None and not usable:
        return None
    if number is None:
        number = first_visible(environment)
    found = [gpu for gpu in usable if gpu.index == number]
    if not usable:
        hint = "Leave --gpu out to work on the CPU; `agent doctor` tells what is there."
        raise NoSuchGpu(f"There is no GPU {number}. This machine has none that this user may use.", hint=hint)
    if not found:
        have = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in usable)
        raise NoSuchGpu(f"There is no GPU {number}. This machine has {have}.", hint="--gpu takes one of these numbers.")
    return found[0]


@dataclass(frozen=True)
class DriverVersions:
    """Versions of what is installed beside the kernel; each None when it is absent or does not tell."""

    amdgpu: str | None = None
    """Of AMD's own module; the one that comes with the kernel has no version but the kernel's."""
    rocm: str | None = None
    """Of /opt/rocm where that is there, else the newest of /opt/rocm-*. A container may have another one inside."""
    nvidia: str | None = None


def driver_versions(root: Path = Path("/")) -> DriverVersions:
    nvidia_says = re.search(r"Kernel Module.*?(\d+(?:\.\d+)+)", sysfs.text(root / "proc/driver/nvidia/version") or "")
    return DriverVersions(
        amdgpu=sysfs.text(root / "sys/module/amdgpu/version"),
        rocm=_rocm_version(root / "opt"),
        nvidia=nvidia_says[1] if nvidia_says else None,
    )


def _rocm_version(opt: Path) -> str | None:
    said = [sysfs.text(folder / ".info/version") for folder in opt.glob("rocm-*")]
    return sysfs.text(opt / "rocm/.info/version") or max(filter(None, said), key=_by_number, default=None)


def _by_number(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)]
