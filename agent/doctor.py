"""Check a machine, and a target when one is given: what is there, what is missing, what a run would do.

Does not change anything; what it starts is ended and removed again. For each problem it says what mends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent import environment, unusual
from agent.reporting import wording
from agent.repository.target import find_entry, find_target, import_target
from sandbox import choose
from sandbox.choose import Name, Wanted
from sandbox.contract import Command, Sandbox
from sandbox.devices import load, lock
from sandbox.devices.gpus import Gpu, choose_gpu, driver_versions, find_gpus
from sandbox.docker.engine import Engine
from sandbox.docker.images import list_images
from sandbox.errors import DeviceBusy, RatchetError, SandboxUnavailable
from tools.errors import ToolError
from tools.judging.open_referee import check_runs_programs, open_referee
from tools.judging.workload import Workload
from tools.private_git import git_program

LITTLE_DISK = 10 << 30  # trees, inputs and compile caches of a run with a large model
_VERSIONS = """
import importlib.util, json, sys
found = {"python": sys.version.split()[0]}
for name in ("torch", "triton"):
    if importlib.util.find_spec(name):
        module = __import__(name)
        found[name] = module.__version__
        if name == "torch":
            found["hip"], found["cuda"] = module.version.hip, module.version.cuda
            found["device"] = module.cuda.get_device_name(0) if module.cuda.is_available() else "cpu"
print(json.dumps(found))
"""
_VERSIONS_S = 120.0
_SHOWN = 3  # images; all of it is to fit on one screen


def check(target: Path | None, entry: str | None, python: Path, provider: Name | None, image: str | None) -> int:
    """Print what was found; returns 0 when a run could start.

    `provider` and `image` are what a run would be given; None is what it would choose. Raises: RatchetError,
    ContainmentNotHeld when the probe inside the sandbox misses a control.
    """
    for line in (*_machine(), *_containers(), *_gpus(), *_unusual(), *_model(os.environ)):
        print(line)
    with tempfile.TemporaryDirectory(prefix="ratchet-doctor-") as name, _own_gpu() as (gpu, in_use):
        folder = Path(name)
        folder.chmod(0o711)  # the separate users of commands pass through
        wanted = Wanted(str(python), folder / "sandbox", (folder,), image=image, gpu=gpu)
        passed_over: dict[Name, SandboxUnavailable] = {}
        sandbox = (
            choose.make(provider, wanted)
            if provider
            else choose.choose(wanted, agree=lambda reasons: True, passed_over=passed_over)
        )
        for line in (*_sandbox(sandbox, passed_over), *_interpreter(sandbox, python, folder, hide_gpus=bool(in_use))):
            print(line)
        if in_use:
            print(_line("", f"no GPU was tried: {in_use}"))
        if target is None or entry is None:
            print(_line("target", "none given; --target and --entry say what a run would do with one"))
        elif in_use:
            print(_line("target", "not looked at while the GPU is in use"))
        else:
            for line in _target(target, entry, python, sandbox, folder):
                print(line)
    return 0


@contextlib.contextmanager
def _own_gpu() -> Iterator[tuple[Gpu | None, str]]:
    """The GPU that a run would use, kept from other runs meanwhile; None and who uses it when one does."""
    gpu = choose_gpu(None, os.environ)
    with contextlib.ExitStack() as held:
        busy = ""
        if gpu is not None:
            try:
                held.enter_context(lock.acquire(gpu, run_id="agent doctor"))
            except DeviceBusy as problem:
                gpu, busy = None, problem.message
        yield gpu, busy


def _line(topic: str, text: str) -> str:
    return f"{topic:<10} {text}"


def _mend(problem: RatchetError) -> Iterator[str]:
    if problem.hint:
        yield _line("", f"to mend it: {problem.hint}")


def _machine() -> Iterator[str]:
    host = environment.read_host()
    yield _line(
        "machine",
        f"{host.cpu_model}, {host.cpu_cores} cores, {wording.gibibytes(host.memory_bytes or 0)} of memory, " + host.os,
    )
    free = shutil.disk_usage(Path.cwd()).free
    yield _line("disk", f"{wording.gibibytes(free)} free here")
    if free < LITTLE_DISK:
        yield _line("", "to mend it: free some, or start runs with --runs-dir on another disk")
    for folder in dict.fromkeys((Path.cwd(), Path(tempfile.gettempdir()))):
        try:
            check_runs_programs(folder)
        except ToolError as problem:
            yield _line("", problem.message)
            yield from _mend(problem)
    yield _line("git", str(git_program()))
    for name, value in environment.result_changing(os.environ).items():
        yield _line("variable", f"{name}={value}")


def _containers() -> Iterator[str]:
    try:
        engine = Engine()
        info = engine.info
        yield _line(
            "engine",
            f"docker {engine.version}, storage {info.get('Driver')}, control groups version "
            f"{info.get('CgroupVersion', '1')}",
        )
        yield from _images(engine)
    except SandboxUnavailable as problem:
        yield _line("engine", problem.message)
        yield from _mend(problem)
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        yield _line("bubblewrap", "not installed (apt-get install bubblewrap); needed only where no engine answers")
    else:
        said = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
        yield _line("bubblewrap", said.strip().removeprefix("bubblewrap "))


def _images(engine: Engine) -> Iterator[str]:
    made = list_images(engine)
    for image in made[:_SHOWN]:
        yield _line("image", f"{image.name}: python {image.python or '?'}, torch {image.torch or 'none'}")
    if len(made) > _SHOWN:
        yield _line("", f"and {len(made) - _SHOWN} more; `agent image list` shows all")
    if not made:
        yield _line("image", "none was made; a run needs none (`agent image build` makes one)")


def _unusual() -> Iterator[str]:
    """What makes timings scatter or differ, and for AMD's GPUs what is good to know: its owner's to change."""
    described = environment.describe()
    amd = any(gpu.vendor == "amd" for gpu in find_gpus().gpus)
    for number, text in enumerate([*unusual.of(described), *(unusual.FOR_AMD if amd else ())]):
        yield _line("for its owner" if number == 0 else "", text)


def _gpus() -> Iterator[str]:
    found, drivers = find_gpus(), driver_versions()
    for gpu in found.gpus:
        facts = [gpu.gfx, gpu.pci, gpu.partition, wording.gibibytes(gpu.memory_bytes) if gpu.memory_bytes else None]
        yield _line("gpu", f"{gpu.index}: {gpu.name} ({', '.join(fact for fact in facts if fact)})")
        if (now := load.read(gpu)).in_use:
            yield _line("", f"in use by something: {now}")
        if not gpu.accessible:
            missing = ", ".join(str(node) for node in gpu.devices if not node.exists())
            yield _line("", f"it cannot be used: {missing} is missing (a container must be given its device nodes)")
        elif closed := [node for node in gpu.devices if not os.access(node, os.R_OK | os.W_OK)]:
            yield from _closed(closed[0], ",".join(map(str, gpu.groups)))
    if not found.gpus:
        yield _line("gpu", "none: runs are on the CPU")
    for note in found.notes:
        yield _line("", note)
    known = {"amdgpu": drivers.amdgpu, "ROCm": drivers.rocm, "NVIDIA": drivers.nvidia}
    if any(known.values()):
        yield _line("driver", ", ".join(f"{name} {version}" for name, version in known.items() if version))


def _closed(node: Path, groups: str) -> Iterator[str]:
    """About a device node that this user may not use."""
    if groups:
        yield _line("", f"{node} is closed to you: no obstacle with docker, which passes group {groups} in")
        yield _line("", f"for bwrap and local: sudo usermod -aG {groups} $USER, then log in again")
    else:
        yield _line("", f"it cannot be used: {node} is closed to you, and to every group")
        yield _line(
            "",
            f"to mend it: give it to a group (sudo chgrp render {node}; sudo chmod 660 {node}), join that "
            "(sudo usermod -aG render $USER), log in again",
        )


def _model(variables: Mapping[str, str]) -> Iterator[str]:
    endpoint = variables.get("OPENAI_BASE_URL")
    if endpoint or variables.get("OPENAI_API_KEY"):
        found = "an endpoint" if endpoint else "a key"
        yield _line("model", f"{found} is set: `--model NAME` asks it for what the playbook does not find")
    else:
        yield _line("model", "neither an endpoint nor a key is set; the playbook needs none")


def _sandbox(sandbox: Sandbox, passed_over: Mapping[Name, SandboxUnavailable]) -> Iterator[str]:
    promises = sandbox.promises()
    held = [name for name, holds in promises.by_name().items() if holds]
    how = "contained, verified from inside" if promises.contained else "uncontained"
    yield _line("sandbox", f"{sandbox.name}: {how}; holds {', '.join(held).replace('_', ' ') or 'nothing'}")
    for note in promises.notes:
        yield _line("", note)
    for name, reason in passed_over.items():
        yield _line("", f"{name} is not used: {reason.message}")
        yield from _mend(reason)


def _interpreter(sandbox: Sandbox, python: Path, folder: Path, *, hide_gpus: bool) -> Iterator[str]:
    """What the target's interpreter says of itself, inside."""
    home = folder / "home"
    home.mkdir()
    environ = {"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home)}
    if hide_gpus:
        environ |= {"HIP_VISIBLE_DEVICES": "-1", "CUDA_VISIBLE_DEVICES": "-1"}
    process = sandbox.start(Command((str(python), "-c", _VERSIONS), home, "versions", environ, writable=(home,)))
    process.wait(_VERSIONS_S)
    ended = process.stop()
    lines = ended.output_tail.strip().splitlines()
    if ended.status != 0 or not lines:
        yield _line("python", f"{python} cannot load torch: {lines[-1] if lines else ended.reason}")
        yield _line("", "to mend it: --python names the interpreter that your repository runs with")
        return
    found = json.loads(lines[-1])
    if "torch" not in found:
        yield _line("python", f"{python} ({found['python']}) has no torch")
        yield _line("", "to mend it: --python names the interpreter that your repository runs with")
        return
    built = f"ROCm {found['hip']}" if found.get("hip") else f"CUDA {found['cuda']}" if found.get("cuda") else "CPU only"
    yield _line(
        "python",
        f"{python}: {found['python']}, torch {found['torch']} ({built}), device {found['device']}, "
        f"triton {found.get('triton', 'none')}",
    )


def _target(target: Path, entry: str, python: Path, sandbox: Sandbox, folder: Path) -> Iterator[str]:
    found = find_target(target)
    name = find_entry(found, entry)
    imported = import_target(found, folder / "pristine")
    yield _line("target", f"{found}: {wording.count(len(imported.files), 'file')}")
    for note in imported.notes:
        yield _line("", note)
    scratch = folder / "scratch"
    scratch.mkdir()
    workload = open_referee(folder / "pristine", name, python=str(python), sandbox=sandbox, scratch=scratch).workload
    yield from _workload(workload, name)


def _workload(workload: Workload, entry: str) -> Iterator[str]:
    kind = "a module" if workload.is_module else "a function, so no state dict is tested"
    yield _line("entry", f"{entry}: form {workload.form}, {workload.mode}, {kind}")
    for case in workload.cases:
        yield _line("", f"{case.name}: about {1e3 * case.call_s:.3g} ms a call")
    unseen = ", ".join(case.name for case in workload.unseen) or "none: shapes() declares no numbers to vary"
    yield _line("", f"judged against {workload.precision or 'its own precision'}; unseen shapes: {unseen}")
