"""Run one command of a profiler in the sandbox, with a folder for its results that is read and removed again.

Does not raise for anything that the command, the sandbox or the disk does: it is told in the result. Hardware
counters are asked for only by a command that reads them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from sandbox.contract import Command, Ended, Limits, Sandbox
from sandbox.errors import SandboxError
from tools.judging import taking
from tools.plain_text import plain
from tools.profiler.rocprof.recorded import Recorded
from tools.tree_removal import remove_tree

MOST_DISK_BYTES = 4 << 30  # of one command's results
ROCM = "/opt/rocm/bin"  # last on the search path
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


def run(
    job: Job,
    what: str,
    argv: Callable[[Path], tuple[str, ...]],
    read: Callable[[Path], Recorded] | None = None,
    *,
    limit_s: float | None = None,
    counters: bool = False,
) -> Ran:
    """`argv` is given the folder for results, and `read` what is in it afterwards, however the command ended."""
    try:
        job.scratch.mkdir(mode=0o711, parents=True, exist_ok=True)
        home = Path(tempfile.mkdtemp(prefix="rocprof-", dir=job.scratch))
    except OSError as error:
        return Ran("refused", [f"{what} was not started: {error.strerror}"])
    try:
        into = home / "results"
        into.mkdir()
        if job.cache is not None:
            taking.copy_folder(job.cache, home / "cache")
        ran = _run(job, what, _command(job, home, argv(into), counters), limit_s or job.time_limit_s)
        if read is not None and ran.outcome != "refused":
            ran.recorded = read(into)
        return ran
    except OSError as error:
        return Ran("refused", [f"{what} was not started: {error.strerror}"])
    finally:
        with contextlib.suppress(OSError):  # what is left goes with the scratch folder
            remove_tree(home)


def _command(job: Job, home: Path, argv: tuple[str, ...], counters: bool) -> Command:
    path = job.env.get("PATH", os.defpath)
    return Command(
        argv=argv,
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
