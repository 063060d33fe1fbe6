"""What a result depends on is recorded and what is secret is not; what is unusual about a machine is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from agent import environment, unusual
from agent.environment import Environment, read_host
from sandbox.devices.readings import GpuSettings
from tests.files import write_files


def test_a_machine_is_read_from_its_files(tmp_path: Path) -> None:
    host = environment.read_host(tmp_path)  # which shows nothing
    assert (host.cpu_model, host.memory_bytes, host.cpu_governor) == ("unknown", None, None)
    assert (host.gpu_driver, host.numa_balancing, host.container) == (None, None, False)
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9654\nprocessor\t: 1\nmodel name\t: Other\n",
        "proc/meminfo": "MemTotal:       24000000 kB\nMemFree: 1 kB\n",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n',
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        ".dockerenv": "",
    }
    host = environment.read_host(write_files(tmp_path, files))
    assert (host.cpu_model, host.memory_bytes) == ("AMD EPYC 9654", 24_000_000 * 1024)
    assert (host.os, host.cpu_governor, host.container) == ("Ubuntu 24.04 LTS", "performance", True)
    assert host.numa_balancing is True


@pytest.mark.parametrize(
    ("file", "text", "driver"),
    [
        ("sys/module/amdgpu/version", "6.14.14\n", "amdgpu 6.14.14"),
        ("sys/module/amdgpu/initstate", "live\n", "amdgpu"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
            "NVIDIA 580.95.05",
        ),
    ],
)
def test_the_kernels_gpu_driver_is_read(tmp_path: Path, file: str, text: str, driver: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert environment.read_host(tmp_path).gpu_driver == driver


CHANGING = """
AITER_TUNE_GEMM AMD_LOG_LEVEL FLASH_ATTENTION_TRITON_AMD_ENABLE GPU_MAX_HW_QUEUES HIPBLASLT_WORKSPACE_SIZE
HIP_VISIBLE_DEVICES HSA_NO_SCRATCH_RECLAIM MIOPEN_FIND_MODE NCCL_DEBUG OMP_NUM_THREADS PYTORCH_TUNABLEOP_ENABLED
ROCR_VISIBLE_DEVICES TORCHINDUCTOR_MAX_AUTOTUNE TORCH_BLAS_PREFER_HIPBLASLT TRITON_CACHE_DIR TRITON_KEYSTROKE
"""


def test_variables_that_change_results_are_recorded() -> None:
    changing = dict.fromkeys(sorted(CHANGING.split()), "1")
    assert environment.result_changing({**changing, "HOME": "/home/user", "EDITOR": "vi"}) == changing


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_HUB_TOKEN", "abc"),
        ("NCCL_AUTH", "abc"),
        ("AMD_API_KEY", "abc"),
        ("PYTORCH_SECRET_SEED", "abc"),
        ("VLLM_API_KEY", "abc"),
        ("TORCHINDUCTOR_REDIS_URL", "redis://user:abc@example.org"),
    ],
)
def test_a_secret_is_never_recorded(name: str, value: str) -> None:
    assert environment.result_changing({name: value}) == {name: environment.WITHHELD}


def machine(
    *gpus: GpuSettings, numa: bool | None = False, governor: str | None = None, **variables: str
) -> Environment:
    host = read_host().model_copy(update={"numa_balancing": numa, "cpu_governor": governor})
    return Environment(host=host, gpus=list(gpus), variables=variables)


def test_only_what_is_unusual_about_the_machine_and_its_gpus_is_said() -> None:
    names = ("partition", "memory_partition", "performance_level", "power_cap_w")
    usual, odd = (
        GpuSettings(name="GPU 0", power_cap_default_w=750.0, **dict(zip(names, values, strict=True)))
        for values in (("SPX", "NPS1", "auto", 750.0), ("CPX", "NPS4", "manual", 600.0))
    )
    assert unusual.of(machine(usual, governor="performance", HIP_VISIBLE_DEVICES="0", OMP_NUM_THREADS="8")) == []
    assert unusual.of(machine(GpuSettings(name="GPU 0"), numa=None)) == []
    said = unusual.of(machine(odd, numa=True, governor="powersave"))
    words = ("sysctl kernel.numa_balancing=0", "powersave", "manual", "600 W, where 750 W", "CPX/NPS4")
    assert [word in line for word, line in zip(words, said, strict=True)] == [True] * len(words)


def test_variables_tell_whether_what_is_judged_sees_them() -> None:
    said = unusual.of(machine(HIP_LAUNCH_BLOCKING="1", TORCHINDUCTOR_MAX_AUTOTUNE="1", ROCM_PATH="/opt/rocm"))
    assert len(said) == 2
    assert said[0].startswith("HIP_LAUNCH_BLOCKING=1: every launch waits")
    assert all(line.endswith("What is judged runs without it.") for line in said)


def test_the_report_of_a_guest_is_checked() -> None:
    assert environment.describe({"torch": "2.13.0", "surprise": {}}).guest == environment.Guest(torch="2.13.0")
    with pytest.raises(ValidationError):
        environment.describe({"torch": "x" * 1000})
