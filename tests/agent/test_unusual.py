"""What is unusual about a machine is said, with what its owner could do; a usual machine has nothing to say."""

from __future__ import annotations

from typing import Any

from agent import unusual
from agent.environment import Environment, read_host
from sandbox.devices.readings import GpuSettings


def machine(
    *gpus: GpuSettings, numa: bool | None = False, governor: str | None = None, **variables: str
) -> Environment:
    host = read_host().model_copy(update={"numa_balancing": numa, "cpu_governor": governor})
    return Environment(host=host, gpus=list(gpus), variables=variables)


USUAL: dict[str, Any] = {
    "partition": "SPX",
    "memory_partition": "NPS1",
    "performance_level": "auto",
    "power_cap_w": 750.0,
}
ODD: dict[str, Any] = {
    "partition": "CPX",
    "memory_partition": "NPS4",
    "performance_level": "manual",
    "power_cap_w": 600.0,
}


def test_only_what_is_unusual_about_the_machine_and_its_gpus_is_said() -> None:
    usual, odd = (GpuSettings(name="GPU 0", power_cap_default_w=750.0, **each) for each in (USUAL, ODD))
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
