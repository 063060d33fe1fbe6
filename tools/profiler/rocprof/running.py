"""What AMD's tools profile, some calls of a build without an agent to talk to, and how one of their commands is run.

A fault of the command, the sandbox or the disk is no exception but a note in the result. Only a command that reads
hardware counters is started with the right to.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from sandbox.contract import Command, Ended, Limits, Sandbox
from sandbox.errors import SandboxError
from tools.judging import taking
from tools.judging.worker import Build, Setting
from tools.judging.workload import Workload
from tools.plain_text import plain
from tools.profiler.rocprof.recorded import Recorded
from tools.program_environment import environment
from tools.tree_removal import remove_tree

MOST_DISK_BYTES = 4 << 30  # of one command's results
ROCM = "/opt/rocm/bin"  # last on the search path
RESULTS = "@results@"  # in a command
_LONGEST_SAID = 200
Outcome = Literal["ended", "failed", "hung", "refused"]


@dataclass(frozen=True)
class Job:
    """A Python program to profile. It should be short, do the same each time, and find its kernels compiled."""

    sandbox: Sandbox
    python: str
    argv: tuple[str, ...]
    cwd: Path
    scratch: Path
    """Where folders for results are made."""
    env: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
    cache: Path | None = None
    """A filled compile cache, of which each run gets a copy."""
    time_limit_s: float = 300.0
    """Of one run of the program under a tool."""

    @property
    def program(self) -> tuple[str, ...]:
        return (self.python, *self.argv)


@dataclass
class Ran:
    """What became of a command. `refused` is the sandbox's word: it never started."""

    outcome: Outcome
    notes: list[str]
    recorded: Recorded = field(default_factory=Recorded)
    output: str = ""


@contextlib.contextmanager
def job(setting: Setting, workload: Workload, build: Build, calls: int) -> Iterator[Job]:
    """`calls` of each case of the workload, after the build; its folder is removed afterwards. Raises: OSError."""
    folder = Path(tempfile.mkdtemp(prefix="calls-", dir=setting.scratch))
    try:
        folder.chmod(0o755)  # separate users pass through
        requests = folder / "requests.json"
        requests.write_text(json.dumps(_requests(_Shown(folder), workload, build, calls)))
        requests.chmod(0o644)
        original = [str(setting.original)] if setting.original else []
        yield Job(
            sandbox=setting.sandbox,
            python=setting.python,
            argv=(str(setting.guest / "bootstrap.py"), "profiler", str(build.tree), setting.entry, *original),
            cwd=(build.tree / setting.entry).parent,
            scratch=setting.scratch,
            env={**environment(None, threads=setting.threads), "RATCHET_REQUESTS": str(requests)},
            readable=(setting.guest, build.tree, folder),
            limits=setting.limits,
            cache=build.cache,
        )
    finally:
        remove_tree(folder)


class _Shown:
    """Our files where the program may read them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def reveal(self, source: Path) -> str:
        self._count += 1
        shown = self._folder / f"input-{self._count}"
        shutil.copyfile(source, shown)
        shown.chmod(0o644)
        return str(shown)


def _requests(shown: _Shown, workload: Workload, build: Build, calls: int) -> list[dict[str, object]]:
    cases = workload.staged(shown)
    requests: list[dict[str, object]] = [
        {"op": "build", "compile_options": build.compile_options, **workload.build_arguments(shown)}
    ]
    if workload.states:
        requests.append({"op": "load_state", "path": shown.reveal(workload.states["a"])})
    return [*requests, {"op": "repeat", "cases": cases, "calls": calls}]


def run(
    job: Job,
    what: str,
    argv: Sequence[str],
    read: Callable[[Path], Recorded] | None = None,
    *,
    limit_s: float | None = None,
    counters: bool = False,
) -> Ran:
    """`RESULTS` in `argv` stands for the folder that `read` reads afterwards, however the command ended."""
    home: Path | None = None
    try:
        job.scratch.mkdir(mode=0o711, parents=True, exist_ok=True)
        home = Path(tempfile.mkdtemp(prefix="rocprof-", dir=job.scratch))
        into = home / "results"
        into.mkdir()
        if job.cache is not None:
            taking.copy_folder(job.cache, home / "cache")
        ran = _run(job, what, _command(job, home, argv, counters), limit_s or job.time_limit_s)
        if read is not None and ran.outcome != "refused":
            ran.recorded = read(into)
        return ran
    except OSError as error:
        return Ran("refused", [f"{what} was not started: {error.strerror}"])
    finally:
        if home is not None:
            with contextlib.suppress(OSError):  # what is left goes with the scratch folder
                remove_tree(home)


def _command(job: Job, home: Path, argv: Sequence[str], counters: bool) -> Command:
    path = job.env.get("PATH", os.defpath)
    return Command(
        argv=tuple(str(home / "results") if part == RESULTS else part for part in argv),
        cwd=job.cwd,
        role="profiler",
        env={
            **job.env,
            "PATH": f"{path}{os.pathsep}{ROCM}",
            "HOME": str(home),
            "TMPDIR": str(home),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "cache" / "inductor"),
            "TRITON_CACHE_DIR": str(home / "cache" / "triton"),
        },
        readable=job.readable,
        writable=(home,),
        limits=replace(job.limits, disk_bytes=job.limits.disk_bytes or MOST_DISK_BYTES),
        counters=counters,
    )


def _run(job: Job, what: str, command: Command, limit_s: float) -> Ran:
    try:
        process = job.sandbox.start(command)
        try:
            ended = process.wait(limit_s)
        finally:
            last = process.stop()
    except SandboxError as error:
        return Ran("refused", [f"{what} was not started: {error.message} {error.hint}".rstrip()])
    if ended is None:
        return Ran("hung", [f"{what} did not end within {limit_s:g} s{_said(last)}"], output=last.output_tail)
    if ended.status == 0:
        return Ran("ended", [], output=ended.output_tail)
    how = f"exit status {ended.status}" if ended.signal is None else f"signal {ended.signal}"
    reason = f"{ended.reason}, " if ended.reason not in ("exited", "signal") else ""
    return Ran("failed", [f"{what} ended with {reason}{how}{_said(ended)}"], output=ended.output_tail)


def _said(ended: Ended) -> str:
    lines = ended.output_tail.strip().splitlines()
    return f": {plain(lines[-1][:_LONGEST_SAID])}" if lines else ""
