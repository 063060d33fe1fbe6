"""Assemble a referee on a pristine tree, in a sandbox of the caller's."""

from __future__ import annotations

import math
import os
import random
import shutil
from functools import partial
from importlib import resources
from pathlib import Path

from sandbox import view
from sandbox.contract import Limits, Sandbox
from sandbox.devices.record import Gpu
from sandbox.errors import SandboxUnavailable
from tools.errors import ToolError
from tools.integrity import hash_tree
from tools.judging import toolchain
from tools.judging.cores import Cores, of_one_node
from tools.judging.device_health import DeviceHealth
from tools.judging.inputs import InputSupply
from tools.judging.inspection import inspect
from tools.judging.measure import LiveClock
from tools.judging.plan import inputs_needed
from tools.judging.referee import Referee
from tools.judging.worker import CHECK_TIMEOUT_S, Build, Setting
from tools.judging.workload import Workload

MEMORY_SHARE = 0.8  # of the machine's memory, for one worker and all it starts
# Of what is free where workers write when a run starts, for one of them: two or three live at a time, and we copy some
# of what they save. At least what an honest one may need, so that on a smaller disk it is the disk that gets full, and
# that is no finding about the code: each call of a check saves its result twice, and compile caches take up to 4 GiB.
# At most two checkpoints of what the largest card holds (288 GB), beside its results.
DISK_SHARE, LEAST_DISK_BYTES, MOST_DISK_BYTES = 0.25, 8 << 30, 768 << 30
PACKAGE_FOLDERS = ("site-packages", "dist-packages")


def open_referee(
    pristine: Path,
    entry: str,
    *,
    python: str,
    sandbox: Sandbox,
    scratch: Path,
    threads: int = 1,
    start_timeout_s: float = 120.0,
    check_timeout_s: float = CHECK_TIMEOUT_S,
    budget_s: float = math.inf,
    memory_bytes: int | None = None,
    seed: int | None = None,
    original: Path | None = None,
    gpu: Gpu | None = None,
    compiles: bool = False,
) -> Referee:
    """A referee with a live clock, whose noise floor is still to be measured. To be closed.

    `scratch` is a folder of the agent; `original` is where the user has what `pristine` is a copy of; `gpu` is the one
    that workers see; `compiles` says that a compiler will be needed.
    Raises: ToolError (WorkloadError among them), SandboxError.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    check_runs_programs(scratch)
    setting = Setting(
        sandbox,
        python,
        copy_guest(scratch / "guest"),
        entry,
        scratch / "workers",
        threads,
        limits(scratch, memory_bytes),
        start_timeout_s,
        scratch / "toolchain",
        original,
        check_timeout_s,
        budget_s,
    )
    rng = random.SystemRandom() if seed is None else random.Random(seed)
    build = Build(hash_tree(pristine)[:16], pristine)
    ahead = toolchain.begin(setting, "cpu" if gpu is None else "cuda") if compiles else None
    try:
        workload = inspect(setting, build, scratch / "workload", rng)
    except BaseException:
        if ahead is not None:
            ahead.end()
        raise
    cores = Cores.of(of_one_node(os.sched_getaffinity(0), threads, gpu.pci if gpu is not None else None), threads)
    supply = InputSupply(setting, workload, build, scratch / "inputs", partial(inputs_needed, workload), rng)
    health = DeviceHealth(setting, workload.device)
    clock = LiveClock(setting, workload, cores, scratch / "timed", supply, health.settle)
    referee = Referee(setting, workload, build, clock, scratch / "referee", health, supply, rng=rng, ahead=ahead)
    referee.grounds.share([setting.guest, pristine, *installed(workload, python)])
    return referee


def check_runs_programs(folder: Path) -> None:
    """What is compiled is loaded from there, and would fail as if the change were at fault. Raises: ToolError."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise ToolError(
            f"{folder} lies on a file system that is mounted noexec, where nothing that is compiled can be loaded.",
            hint="Name a folder on another one: --runs-dir for a run, the variable TMPDIR for any other command.",
        )


def copy_guest(into: Path) -> Path:
    """A copy of the guest that workers may only read."""
    into.mkdir(parents=True)
    for item in resources.files("sandbox.guest").iterdir():
        if item.name.endswith(".py"):
            (into / item.name).write_bytes(item.read_bytes())
            (into / item.name).chmod(0o444)
    into.chmod(0o555)
    return into


def installed(workload: Workload, python: str) -> list[Path]:
    """The folders of installed packages, as the target's interpreter names them, and only those.

    It is the target's word: another folder would have us walk whatever it names. So they have to be called as such
    folders are, and lie in the interpreter's own installation, where links lead as well. None in an image.
    """
    try:
        prefixes = [prefix.resolve() for prefix in view.of_python(python)]
    except SandboxUnavailable:  # an image's, which is not on this machine
        return []
    named = [Path(os.path.realpath(each)) for each in workload.environment.get("installed", ()) if "\0" not in each]
    return [
        folder
        for folder in dict.fromkeys(named)
        if folder.name in PACKAGE_FOLDERS
        and any(folder != prefix and folder.is_relative_to(prefix) for prefix in prefixes)
        and os.path.isdir(folder)  # noqa: PTH112 - False where `is_dir` raises
    ]


def limits(scratch: Path, memory_bytes: int | None = None) -> Limits:
    """What one worker and all it starts may use."""
    share = int(DISK_SHARE * shutil.disk_usage(scratch).free)
    disk_bytes = max(LEAST_DISK_BYTES, min(MOST_DISK_BYTES, share))
    return Limits(memory_bytes=memory_bytes or memory_limit(), file_bytes=disk_bytes, disk_bytes=disk_bytes)


def memory_limit() -> int:
    """Bytes that one worker and all it starts may use: a share of the machine's, or of what a container shows as such.

    Raises: ToolError.
    """
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(MEMORY_SHARE * 1024 * int(line.split()[1]))
    raise ToolError("The size of this machine's memory cannot be read.", hint="Is /proc mounted?")
