"""What a result depends on besides the code: machine, software, and the variables that change results.

Does not record secrets: a value whose name or form looks like one is replaced, whatever its prefix. What only the
target's interpreter knows (torch, triton, the GPU) is reported by the guest and only checked here.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sandbox.devices import settings
from sandbox.devices.gpus import driver_versions, find_gpus

# Prefixes of variables that change what torch, its compilers or the AMD and NVIDIA runtimes do.
RESULT_CHANGING = re.compile(
    "(?:AITER|AMDGCN|AMD|AOTRITON|CK|CUBLAS|CUDA|CUDNN|DEBUG_CLR|DEBUG_HIP|FLASH_ATTENTION|FLA|GOMP|GPU|HIPBLASLT|"
    "HIPBLAS|HIP|HSA|INDUCTOR|KMP|MALLOC|MIOPEN|MKL|MSCCL|NCCL|NVIDIA_TF32|OMP|OPENBLAS|PYTORCH|RCCL|ROCBLAS|ROCM|"
    "ROCR|ROC|TENSILE|TF32|TORCHINDUCTOR|TORCH|TRITON|TUNABLEOP|VLLM)_"
)
_ALSO = frozenset({"CC", "CXX", "LD_LIBRARY_PATH", "LD_PRELOAD"})
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|APIKEY|PRIVATE|(?:^|_)KEY(?:$|_)")
_SECRET_VALUE = re.compile(r"://[^/\s]*@")  # an address with a user in it
WITHHELD = "(withheld)"


class Host(BaseModel):
    """The machine, as the host side sees it."""

    model_config = ConfigDict(extra="forbid")

    os: str
    kernel: str
    machine: str
    cpu_model: str
    cpu_cores: int
    """Cores this process may use."""
    cpu_cores_online: int
    cpu_governor: str | None = None
    numa_balancing: bool | None = None
    memory_bytes: int | None = None
    gpu_driver: str | None = None
    """Of the kernel: amdgpu's version where it is not the kernel's own, or NVIDIA's."""
    python: str
    container: bool
    """True when the usual marks of a container are there; what it is told about the machine may be the outer one's."""


class Guest(BaseModel):
    """The target's interpreter, as the guest reports it. Untrusted text: it explains a result and decides nothing."""

    model_config = ConfigDict(extra="ignore")

    python: str | None = Field(default=None, max_length=200)
    torch: str | None = Field(default=None, max_length=200)
    triton: str | None = Field(default=None, max_length=200)
    transformers: str | None = Field(default=None, max_length=200)
    vllm: str | None = Field(default=None, max_length=200)
    aiter: str | None = Field(default=None, max_length=200)
    hip: str | None = Field(default=None, max_length=200)
    """`torch.version.hip`; None on anything that is not ROCm."""
    rocm: str | None = Field(default=None, max_length=200)
    cuda: str | None = Field(default=None, max_length=200)
    llvm: str | None = Field(default=None, max_length=200)
    hipblaslt: str | None = Field(default=None, max_length=200)
    device: str | None = Field(default=None, max_length=200)
    """`cpu` or `cuda`; PyTorch calls an AMD device `cuda` as well."""
    gfx: str | None = Field(default=None, max_length=200)
    gpu_name: str | None = Field(default=None, max_length=200)
    gpu_memory_bytes: int | None = Field(default=None, ge=0)
    threads: int | None = Field(default=None, ge=0)


class GpuSettings(BaseModel):
    """How one GPU is set up by whoever owns the machine; None where that cannot be read."""

    model_config = ConfigDict(extra="forbid")

    name: str
    partition: str | None = None
    memory_partition: str | None = None
    performance_level: str | None = None
    """amdgpu's, "auto" unless somebody chose the clocks."""
    power_cap_w: float | None = None
    power_cap_default_w: float | None = None
    most_mhz: float | None = None


class Environment(BaseModel):
    """Everything of this kind that a report and `run.json` carry."""

    model_config = ConfigDict(extra="forbid")

    host: Host
    guest: Guest | None = None
    gpus: list[GpuSettings] = Field(default_factory=list)
    """Of the machine, by number."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Variables that change results, by name."""


def read_host(root: Path = Path("/")) -> Host:
    """Look at this machine; what is not to be read there is None or "unknown". `root` is another `/`, for tests."""
    cpu = _fields(root / "proc/cpuinfo")
    memory = re.match(r"(\d+) kB", _fields(root / "proc/meminfo").get("MemTotal", ""))
    release = {name: value.strip('"') for name, value in _fields(root / "etc/os-release", "=").items()}
    governor = _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()
    return Host(
        os=release.get("PRETTY_NAME", platform.system()),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu_model=cpu.get("model name") or cpu.get("Model") or "unknown",
        cpu_cores=len(os.sched_getaffinity(0)),
        cpu_cores_online=os.cpu_count() or 1,
        cpu_governor=governor or None,
        numa_balancing=_switch(root / "proc/sys/kernel/numa_balancing"),
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        gpu_driver=_gpu_driver(root),
        python=platform.python_version(),
        container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
    )


def read_gpus(root: Path = Path("/")) -> list[GpuSettings]:
    """`root` is another `/`, for tests."""
    found = []
    for gpu in find_gpus(root).gpus:
        facts = {"name": f"GPU {gpu.index} ({gpu.name})", "partition": gpu.partition}
        told = asdict(settings.read(gpu, root))
        found.append(GpuSettings.model_validate({**facts, "memory_partition": gpu.memory_partition, **told}))
    return found


def _switch(path: Path) -> bool | None:
    text = _text(path).strip()
    return text != "0" if text.isdigit() else None


def _gpu_driver(root: Path) -> str | None:
    found = driver_versions(root)
    if (root / "sys/module/amdgpu").exists():
        return f"amdgpu {found.amdgpu or ''}".strip()
    return f"NVIDIA {found.nvidia}" if found.nvidia else None


def result_changing(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that change results, secrets replaced by `(withheld)`."""
    names = sorted(name for name in environment if name in _ALSO or RESULT_CHANGING.match(name))
    return {name: _without_secret(name, environment[name]) for name in names}


def describe(guest: Mapping[str, Any] | None = None) -> Environment:
    """The environment of a run. Raises: pydantic.ValidationError when the guest's report is not one."""
    return Environment(
        host=read_host(),
        guest=None if guest is None else Guest.model_validate(guest),
        gpus=read_gpus(),
        variables=result_changing(os.environ),
    )


def _without_secret(name: str, value: str) -> str:
    return WITHHELD if _SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value) else value


def _fields(path: Path, separator: str = ":") -> dict[str, str]:
    """The first value of each `name: value` line."""
    found: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(separator)
        found.setdefault(name.strip(), value.strip())
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
