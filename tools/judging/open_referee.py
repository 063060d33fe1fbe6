"""Put a referee together on a pristine tree: the guest's copy, the workload, the clock, the watch on packages.

Refuses to decide where it runs: the sandbox is the caller's.
"""

from __future__ import annotations

import os
from functools import partial
from importlib import resources
from pathlib import Path

from sandbox.contract import Limits, Sandbox
from tools.errors import ToolError
from tools.integrity import hash_tree
from tools.judging.clock import Cores, inputs_needed
from tools.judging.device_health import DeviceHealth
from tools.judging.inputs import InputSupply
from tools.judging.measure import LiveClock
from tools.judging.referee import Referee
from tools.judging.worker import Build, Setting
from tools.judging.workload import Workload, inspect, secret_rng

MEMORY_SHARE = 0.8  # of the machine's memory, for one worker and all it starts


def open_referee(
    pristine: Path,
    entry: str,
    *,
    python: str,
    sandbox: Sandbox,
    scratch: Path,
    threads: int = 1,
    start_timeout_s: float = 120.0,
    memory_bytes: int | None = None,
    seed: int | None = None,
    original: Path | None = None,
) -> Referee:
    """A referee with a live clock, whose noise floor is still to be measured. To be closed.

    `scratch` is a folder of ours, which exists; `original` is where the user has what `pristine` is a copy of.
    Raises: WorkloadError, SandboxError.
    """
    setting = Setting(
        sandbox,
        python,
        copy_guest(scratch / "guest"),
        entry,
        scratch / "workers",
        threads,
        Limits(memory_bytes=memory_bytes or memory_limit()),
        start_timeout_s,
        scratch / "toolchain",
        original,
    )
    rng = secret_rng(seed)
    build = Build(hash_tree(pristine)[:16], pristine)
    workload = inspect(setting, build, scratch / "workload", rng)
    cores = Cores.of(sorted(os.sched_getaffinity(0)), threads, workload.device)
    supply = InputSupply(setting, workload, build, scratch / "inputs", partial(inputs_needed, workload), rng)
    health = DeviceHealth(setting, workload.device)
    clock = LiveClock(setting, workload, cores, scratch / "timed", supply, health.settle)
    referee = Referee(setting, workload, build, clock, scratch / "referee", health, rng=rng)
    referee.grounds.share([setting.guest, pristine, *installed(workload)])
    return referee


def copy_guest(into: Path) -> Path:
    """A copy of the guest that workers may only read."""
    into.mkdir(parents=True)
    for item in resources.files("sandbox.guest").iterdir():
        if item.name.endswith(".py"):
            (into / item.name).write_bytes(item.read_bytes())
            (into / item.name).chmod(0o444)
    into.chmod(0o555)
    return into


def installed(workload: Workload) -> list[Path]:
    """The folders of installed packages, as the target's interpreter names them."""
    return [Path(folder) for folder in workload.environment.get("installed", []) if Path(folder).is_dir()]


def memory_limit() -> int:
    """Bytes one worker and all it starts may use. Raises: ToolError."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(MEMORY_SHARE * 1024 * int(line.split()[1]))
    raise ToolError("The size of this machine's memory cannot be read.", hint="Is /proc mounted?")
