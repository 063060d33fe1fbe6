"""Find the GPUs of this machine from the kernel alone, and say what a process needs to use exactly one of them.

Does not open a device, start a tool or import torch; what cannot be read is a note, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def choose_gpu(number: int | None, environment: Mapping[str, str]) -> Gpu | None:
    """The GPU of this number; where none is asked for the first that the environment leaves visible, None without any.

    Raises: NoSuchGpu.
    """
    usable = [gpu for gpu in find_gpus().gpus if gpu.accessible]
    if number is None:
        number = _first_visible(environment) if usable else None
        if number is None:
            return None
    for gpu in usable:
        if gpu.index == number:
            return gpu
    if not usable:
        hint = "Leave --gpu out to work on the CPU; `agent doctor` tells what is there."
        raise NoSuchGpu(f"There is no GPU {number}. This machine has none that this user may use.", hint=hint)
    have = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in usable)
    raise NoSuchGpu(f"There is no GPU {number}. This machine has {have}.", hint="--gpu takes one of these numbers.")


def _first_visible(environment: Mapping[str, str]) -> int | None:
    """The number of the first GPU that these variables leave visible: 0 where none is set or they hold ids, None where
    one hides all: an empty list, or one that begins with a negative number.
    """
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in environment:
            first = environment[name].partition(",")[0].strip()
            if first.isdigit():
                return int(first)
            if not first or first.startswith("-"):
                return None
    return 0


def driver_versions(root: Path = Path("/")) -> dict[str, str]:
    """Of what is installed beside the kernel, by "amdgpu", "ROCm" and "NVIDIA"; what is absent or unknown is left out.

    The amdgpu module that comes with the kernel has no version of its own. ROCm's is that of /opt/rocm, else the newest
    of /opt/rocm-*; a container may have another one inside.
    """
    said = [sysfs.text(folder / ".info/version") for folder in (root / "opt").glob("rocm-*")]
    nvidia_says = re.search(r"Kernel Module.*?(\d+(?:\.\d+)+)", sysfs.text(root / "proc/driver/nvidia/version") or "")
    found = {
        "amdgpu": sysfs.text(root / "sys/module/amdgpu/version"),
        "ROCm": sysfs.text(root / "opt/rocm/.info/version") or max(filter(None, said), key=_by_number, default=None),
        "NVIDIA": nvidia_says[1] if nvidia_says else None,
    }
    return {name: version for name, version in found.items() if version}


def _by_number(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)]
