"""Check a machine, and a target when one is given: what is there, what is missing, what a run would do.

Does not change anything; what it starts is ended and removed again. Each problem comes with its fix.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from agent import environment, unusual
from agent.reporting import wording
from agent.repository.target import find_entry, find_target, import_target
from sandbox import choose
from sandbox.choose import Name, Wanted
from sandbox.contract import Command, Sandbox
from sandbox.devices import lock, readings
from sandbox.devices.gpus import Gpu, choose_gpu, driver_versions, find_gpus
from sandbox.docker.engine import Engine
from sandbox.docker.images import list_images
from sandbox.errors import DeviceBusy, SandboxUnavailable
from tools.errors import ToolError
from tools.judging.open_referee import check_runs_programs, open_referee
from tools.private_git import git_program
from tools.tree_removal import passable_folder

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
_ANOTHER_PYTHON = "--python names the interpreter that your repository runs with"
Lines = Iterator[tuple[str, str]]
"""The topic of each line, empty when it is that of the line before, and its text."""


def check(target: Path | None, entry: str | None, python: Path, provider: Name | None, image: str | None) -> int:
    """Print what was found; returns 0 when a run could start.

    `provider` and `image` are what a run would be given; None is what it would choose. Raises: RatchetError,
    ContainmentNotHeld when the probe inside the sandbox misses a control.
    """
    _print(_machine(), _containers(), _gpus(), _unusual(), _model(os.environ))
    with passable_folder("ratchet-doctor-") as folder, _own_gpu() as (gpu, in_use):
        wanted = Wanted(str(python), folder / "sandbox", (folder,), image=image, gpu=gpu)
        passed_over: dict[Name, SandboxUnavailable] = {}
        if provider:
            sandbox = choose.make(provider, wanted)
        else:
            sandbox = choose.choose(wanted, agree=lambda reasons: True, passed_over=passed_over)
        _print(_sandbox(sandbox, passed_over), _interpreter(sandbox, python, folder, hide_gpus=bool(in_use)))
        if in_use:
            _print([("", f"no GPU was tried: {in_use}")])
        if target is None or entry is None:
            _print([("target", "none given; --target and --entry say what a run would do with one")])
        elif in_use:
            _print([("target", "not looked at while the GPU is in use")])
        else:
            _print(_target(target, entry, python, sandbox, folder))
    return 0


def _print(*parts: Iterable[tuple[str, str]]) -> None:
    for topic, text in itertools.chain(*parts):
        print(f"{topic:<10} {text}")


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


def _fix(hint: str) -> Lines:
    if hint:
        yield "", f"Fix: {hint}"


def _machine() -> Lines:
    host = environment.read_host()
    memory = wording.gibibytes(host.memory_bytes or 0)
    yield "machine", f"{host.cpu_model}, {host.cpu_cores} cores, {memory} of memory, {host.os}"
    free = shutil.disk_usage(Path.cwd()).free
    yield "disk", f"{wording.gibibytes(free)} free here"
    if free < LITTLE_DISK:
        yield from _fix("free some, or start runs with --runs-dir on another disk")
    for folder in dict.fromkeys((Path.cwd(), Path(tempfile.gettempdir()))):
        try:
            check_runs_programs(folder)
        except ToolError as problem:
            yield "", problem.message
            yield from _fix(problem.hint)
    yield "git", str(git_program())
    for name, value in environment.result_changing(os.environ).items():
        yield "variable", f"{name}={value}"


def _containers() -> Lines:
    try:
        engine = Engine()
        storage, groups = engine.info.get("Driver"), engine.info.get("CgroupVersion", "1")
        yield "engine", f"docker {engine.version}, storage {storage}, control groups version {groups}"
        made = list_images(engine)
        for image in made[:_SHOWN]:
            yield "image", f"{image.name}: python {image.python or '?'}, torch {image.torch or 'none'}"
        if len(made) > _SHOWN:
            yield "", f"and {len(made) - _SHOWN} more; `agent image list` shows all"
        if not made:
            yield "image", "none was made; a run needs none (`agent image build` makes one)"
    except SandboxUnavailable as problem:
        yield "engine", problem.message
        yield from _fix(problem.hint)
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        yield "bubblewrap", "not installed (apt-get install bubblewrap); needed only where no engine answers"
    else:
        said = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
        yield "bubblewrap", said.strip().removeprefix("bubblewrap ")


def _unusual() -> Lines:
    """Settings that make timings scatter or differ, which an administrator can change, and advice for AMD's GPUs."""
    described = environment.describe()
    amd = any(gpu.vendor == "amd" for gpu in find_gpus().gpus)
    if said := [*unusual.of(described), *(unusual.FOR_AMD if amd else ())]:
        yield "Machine settings", ""
        yield from (("", text) for text in said)


def _gpus() -> Lines:
    found, drivers = find_gpus(), driver_versions()
    for gpu in found.gpus:
        facts = [gpu.gfx, gpu.pci, gpu.partition, wording.gibibytes(gpu.memory_bytes) if gpu.memory_bytes else None]
        yield "gpu", f"{gpu.index}: {gpu.name} ({', '.join(fact for fact in facts if fact)})"
        if (now := readings.load(gpu)).in_use:
            yield "", f"in use by another program: {now}"
        if not gpu.accessible:
            missing = ", ".join(str(node) for node in gpu.devices if not node.exists())
            yield "", f"it cannot be used: {missing} is missing (a container must be given its device nodes)"
        elif closed := [node for node in gpu.devices if not os.access(node, os.R_OK | os.W_OK)]:
            yield from _closed(closed[0], ",".join(map(str, gpu.groups)))
    if not found.gpus:
        yield "gpu", "none: runs are on the CPU"
    yield from (("", note) for note in found.notes)
    if drivers:
        yield "driver", ", ".join(f"{name} {version}" for name, version in drivers.items())


def _closed(node: Path, groups: str) -> Lines:
    """About a device node that this user may not use."""
    if groups:
        yield "", f"{node} is closed to you: no obstacle with docker, which passes group {groups} in"
        yield "", f"for bwrap and local: sudo usermod -aG {groups} $USER, then log in again"
    else:
        yield "", f"it cannot be used: {node} is closed to you, and to every group"
        yield from _fix(
            f"give it to a group (sudo chgrp render {node}; sudo chmod 660 {node}), join that (sudo usermod -aG "
            "render $USER), log in again"
        )


def _model(variables: Mapping[str, str]) -> Lines:
    endpoint = variables.get("OPENAI_BASE_URL")
    if endpoint or variables.get("OPENAI_API_KEY"):
        found = "an endpoint" if endpoint else "a key"
        yield "model", f"{found} is set: `--model NAME` asks it for what the playbook does not find"
    else:
        yield "model", "neither an endpoint nor a key is set; the playbook needs none"


def _sandbox(sandbox: Sandbox, passed_over: Mapping[Name, SandboxUnavailable]) -> Lines:
    promises = sandbox.promises()
    held = [name for name, holds in promises.by_name().items() if holds]
    how = "contained, verified from inside" if promises.contained else "uncontained"
    yield "sandbox", f"{sandbox.name}: {how}; holds {', '.join(held).replace('_', ' ') or 'nothing'}"
    yield from (("", note) for note in promises.notes)
    for name, reason in passed_over.items():
        yield "", f"{name} is not used: {reason.message}"
        yield from _fix(reason.hint)


def _interpreter(sandbox: Sandbox, python: Path, folder: Path, *, hide_gpus: bool) -> Lines:
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
    found = json.loads(lines[-1]) if ended.status == 0 and lines else {}
    if "torch" not in found:
        why = f"cannot load torch: {lines[-1] if lines else ended.reason}"
        if found:
            why = f"({found['python']}) has no torch"
        yield "python", f"{python} {why}"
        yield from _fix(_ANOTHER_PYTHON)
        return
    built = f"ROCm {found['hip']}" if found.get("hip") else f"CUDA {found['cuda']}" if found.get("cuda") else "CPU only"
    has = f"torch {found['torch']} ({built}), device {found['device']}, triton {found.get('triton', 'none')}"
    yield "python", f"{python}: {found['python']}, {has}"


def _target(target: Path, entry: str, python: Path, sandbox: Sandbox, folder: Path) -> Lines:
    found = find_target(target)
    name = find_entry(found, entry)
    imported = import_target(found, folder / "pristine")
    yield "target", f"{found}: {wording.count(len(imported.files), 'file')}"
    yield from (("", note) for note in imported.notes)
    scratch = folder / "scratch"
    scratch.mkdir()
    workload = open_referee(folder / "pristine", name, python=str(python), sandbox=sandbox, scratch=scratch).workload
    kind = "a module" if workload.is_module else "a function, so no state dict is tested"
    yield "entry", f"{name}: form {workload.form}, {workload.mode}, {kind}"
    yield from (("", note) for note in workload.notes)
    for case in workload.cases:
        yield "", f"{case.name}: about {1e3 * case.call_s:.3g} ms a call"
    unseen = ", ".join(case.name for case in workload.unseen) or "none: shapes() declares no numbers to vary"
    yield "", f"judged against {workload.precision or 'its own precision'}; unseen shapes: {unseen}"
