"""What a result depends on besides the code: machine, software, and the variables that change results.

Does not record secrets: a value whose name or form looks like one is replaced, whatever its prefix. What only the
target's interpreter knows (torch, triton, the GPU) is reported by the guest and only checked here.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sandbox.devices import readings, sysfs
from sandbox.devices.gpus import driver_versions, find_gpus
from sandbox.devices.readings import GpuSettings

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
_Text = Annotated[str | None, Field(max_length=200)]


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

    python: _Text = None
    torch: _Text = None
    triton: _Text = None
    transformers: _Text = None
    vllm: _Text = None
    aiter: _Text = None
    hip: _Text = None
    """`torch.version.hip`; None on anything that is not ROCm."""
    rocm: _Text = None
    cuda: _Text = None
    llvm: _Text = None
    hipblaslt: _Text = None
    device: _Text = None
    """`cpu` or `cuda`; PyTorch calls an AMD device `cuda` as well."""
    gfx: _Text = None
    gpu_name: _Text = None
    gpu_memory_bytes: int | None = Field(default=None, ge=0)
    threads: int | None = Field(default=None, ge=0)


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
    """Look at this machine; what cannot be read there is None or "unknown". `root` is another `/`, for tests."""

    def text(path: str) -> str:
        return sysfs.text(root / path) or ""

    cpu = sysfs.fields(text("proc/cpuinfo"), ":")
    memory = re.match(r"(\d+) kB", sysfs.fields(text("proc/meminfo"), ":").get("MemTotal", ""))
    balancing = text("proc/sys/kernel/numa_balancing")
    drivers = driver_versions(root)
    driver = f"NVIDIA {drivers['NVIDIA']}" if "NVIDIA" in drivers else None
    if (root / "sys/module/amdgpu").exists():
        driver = f"amdgpu {drivers.get('amdgpu', '')}".strip()
    return Host(
        os=sysfs.fields(text("etc/os-release"), "=").get("PRETTY_NAME", platform.system()).strip('"'),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu_model=cpu.get("model name") or cpu.get("Model") or "unknown",
        cpu_cores=len(os.sched_getaffinity(0)),
        cpu_cores_online=os.cpu_count() or 1,
        cpu_governor=text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        numa_balancing=balancing != "0" if balancing.isdigit() else None,
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        gpu_driver=driver,
        python=platform.python_version(),
        container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
    )


def result_changing(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that change results, secrets replaced by `(withheld)`."""
    return {
        name: WITHHELD if _SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value) else value
        for name, value in sorted(environment.items())
        if name in _ALSO or RESULT_CHANGING.match(name)
    }


def describe(guest: Mapping[str, Any] | None = None) -> Environment:
    """The environment of a run. Raises: pydantic.ValidationError when the guest's report is not one."""
    return Environment(
        host=read_host(),
        guest=None if guest is None else Guest.model_validate(guest),
        gpus=[readings.settings(gpu) for gpu in find_gpus().gpus],
        variables=result_changing(os.environ),
    )
