"""Machine settings that make timings scatter or results differ between machines, as text for report and doctor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.environment import Environment, Host
from sandbox.devices.readings import GpuSettings
from tools.program_environment import PASSED

_SERIAL = "every launch waits for the one before it"
_DEBUGGING = "it is for finding errors, and slow"
_FEWER_UNITS = "kernels get a part of the compute units only"
# Variables that should not be set, by name, or by prefix where that ends in an underscore.
VARIABLES: Mapping[str, str] = {
    "AMD_LOG_LEVEL": "the runtime writes a log",
    "AMD_SERIALIZE_COPY": _SERIAL,
    "AMD_SERIALIZE_KERNEL": _SERIAL,
    "CUDA_LAUNCH_BLOCKING": _SERIAL,
    "DEBUG_CLR_GRAPH_PACKET_CAPTURE": "at 0, graphs are replayed more slowly, so that tracers see their kernels",
    "GPU_MAX_HW_QUEUES": "streams beyond that number share a hardware queue; 4 is usual",
    "HIP_LAUNCH_BLOCKING": _SERIAL,
    "HSA_CU_MASK": _FEWER_UNITS,
    "HSA_DISABLE_FRAGMENT_ALLOCATOR": _DEBUGGING,
    "HSA_ENABLE_DEBUG": _DEBUGGING,
    "HSA_OVERRIDE_GFX_VERSION": "the GPU is taken for another one; no supported Instinct needs it",
    "HSA_TOOLS_LIB": "a tool is loaded into the runtime",
    "LD_PRELOAD": "a library is loaded into every program",
    "NCCL_MIN_NCHANNELS": "more channels take compute units from kernels",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _DEBUGGING,
    "PYTORCH_NO_HIP_MEMORY_CACHING": _DEBUGGING,
    "PYTORCH_TUNABLEOP_": "matrix products are tuned, or use what was tuned before",
    "RCCL_MSCCL_ENABLE": "newer versions of RCCL have no MSCCL",
    "ROC_GLOBAL_CU_MASK": _FEWER_UNITS,
    "TORCHINDUCTOR_": "torch.compile behaves in another way than on machines without it; AMD's containers set some",
    "TRITON_INTERPRET": "kernels run in Python",
}
# General advice for AMD GPUs.
FOR_AMD: Sequence[str] = (
    "One process for each GPU: ROCm launches to several GPUs from one process one after the other.",
    "GPU_MAX_HW_QUEUES (4) is how many streams of a process run side by side; more share a queue.",
    "HSA_CU_MASK keeps a process to some compute units, which helps neighbours and never the process itself.",
    "On an MI300X node use one GPU or all eight: in between, only a part of the links between them works.",
)
_TOLERANCE_W = 1.0


def of(environment: Environment) -> list[str]:
    """One line each, the machine's first."""
    return [*_of_host(environment.host), *_of_gpus(environment.gpus), *_of_variables(environment.variables)]


def _of_host(host: Host) -> Iterator[str]:
    if host.numa_balancing:
        yield (
            "NUMA balancing is on: the kernel moves pages while calls are timed. To switch it off: "
            "sysctl kernel.numa_balancing=0."
        )
    if host.cpu_governor not in (None, "performance"):
        yield f"The CPU's clock follows its load (governor {host.cpu_governor}): short calls may find it asleep."


def _of_gpus(gpus: Sequence[GpuSettings]) -> Iterator[str]:
    for gpu in gpus:
        if gpu.performance_level not in (None, "auto"):
            yield f"The clocks of {gpu.name} are set by hand ({gpu.performance_level})."
        cap, usual = gpu.power_cap_w, gpu.power_cap_default_w
        if cap is not None and usual is not None and abs(cap - usual) > _TOLERANCE_W:
            yield f"The power of {gpu.name} is capped at {cap:.0f} W, where {usual:.0f} W are usual."
        if gpu.partition not in (None, "SPX") or gpu.memory_partition not in (None, "NPS1"):
            modes = "/".join(mode for mode in (gpu.partition, gpu.memory_partition) if mode)
            yield f"{gpu.name} is partitioned ({modes}): what is measured is one partition's."


def _of_variables(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        why = VARIABLES.get(name) or next(
            (text for start, text in VARIABLES.items() if start.endswith("_") and name.startswith(start)), None
        )
        if why is not None:
            reach = "" if name in PASSED else " What is judged runs without it."
            yield f"{name}={value}: {why}.{reach}"
