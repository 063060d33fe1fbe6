"""Check a machine, and a target when one is given: what is there, what is missing, what a run would do.

Refuses to change anything; what it starts is ended and removed again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agent import environment
from agent.reporting import wording
from agent.repository.private_git import git_program
from agent.repository.target import find_entry, find_target, import_target
from sandbox.local.provider import LocalSandbox
from tools.judging.open_referee import open_referee
from tools.judging.workload import Workload


def check(target: Path | None, entry: str | None, python: Path) -> int:
    """Print what was found; returns 0 when a run could start. Raises: RatchetError."""
    host = environment.read_host()
    print(f"machine    {host.cpu_model}, {host.cpu_cores} cores, "
          f"{wording.gibibytes(host.memory_bytes or 0)} of memory, {host.os}")  # fmt: skip
    print(f"disk       {wording.gibibytes(shutil.disk_usage(Path.cwd()).free)} free here")
    print(f"git        {git_program()}")
    for name, value in environment.result_changing(os.environ).items():
        print(f"variable   {name}={value}")
    with tempfile.TemporaryDirectory(prefix="ratchet-doctor-") as folder:
        sandbox = LocalSandbox(python, Path(folder) / "sandbox", imports=("torch",), owned=(Path(folder),))
        promises = sandbox.promises()
        held = [name for name in ("no_network", "separate_users", "ends_whole_tree", "enforced_cpus")
                if getattr(promises, name)]  # fmt: skip
        print(f"sandbox    local: uncontained; holds {', '.join(held).replace('_', ' ') or 'nothing'}")
        for note in promises.notes:
            print(f"           {note}")
        if target is None or entry is None:
            print("target     none given; --target and --entry say what a run would do with one")
            return 0
        for line in _target(target, entry, python, sandbox, Path(folder)):
            print(line)
    return 0


def _target(target: Path, entry: str, python: Path, sandbox: LocalSandbox, folder: Path) -> Iterator[str]:
    found = find_target(target)
    name = find_entry(found, entry)
    imported = import_target(found, folder / "pristine")
    yield f"target     {found}: {wording.count(len(imported.files), 'file')}"
    for note in imported.notes:
        yield f"           {note}"
    scratch = folder / "scratch"
    scratch.mkdir()
    workload = open_referee(folder / "pristine", name, python=str(python), sandbox=sandbox, scratch=scratch).workload
    told = workload.environment
    gpu = f", {told['gpu_name']}" if told.get("gpu_name") else ""
    triton = told.get("triton") or "none"
    yield f"python     {python}: torch {told['torch']}, device {told['device']}{gpu}, triton {triton}"
    yield from _workload(workload, name)


def _workload(workload: Workload, entry: str) -> Iterator[str]:
    kind = "a module" if workload.is_module else "a function, so no state dict is tested"
    yield f"entry      {entry}: form {workload.form}, {workload.mode}, {kind}"
    for case in workload.cases:
        yield f"           {case.name}: about {1e3 * case.call_s:.3g} ms a call"
    unseen = ", ".join(case.name for case in workload.unseen) or "none: shapes() declares no numbers to vary"
    yield f"           judged against {workload.precision or 'its own precision'}; unseen shapes: {unseen}"
