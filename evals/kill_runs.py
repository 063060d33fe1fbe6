"""Kill runs at random moments and list the containers, processes, mounts and records left after the next start."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pydantic import BaseModel, Field

from evals.results import Evidence
from sandbox import choose
from sandbox.choose import Name, Wanted
from sandbox.contract import Sandbox

TASK = Path(__file__).parent / "tasks" / "kb_mlp"
LATEST_S = 25.0  # by then workers run side by side, and the compiler is at work
_GRACE_S = 20.0  # what was sent a SIGKILL may wait in the kernel for a slow disk


class Killed(BaseModel):
    """One run: when it was killed, in seconds after its start, and what it left."""

    after_s: float
    before_next_start: list[str] = Field(default_factory=list)
    ended_by_next_start: list[str] = Field(default_factory=list)
    left: list[str] = Field(default_factory=list)


class KillRuns(Evidence):
    """One execution of `evals kill-runs`."""

    topic = "kill-runs"
    title = "Runs killed at random moments"
    provider: str
    runs: list[Killed] = Field(default_factory=list)

    def body(self) -> str:
        clean = sum(not run.left for run in self.runs)
        early = sum(not run.before_next_start for run in self.runs)
        lines = [
            f"{len(self.runs)} runs of `{TASK.name}` in {self.provider}, each killed within {LATEST_S:.0f} s "
            "of its start.\n",
            f"- nothing left after the next start: {clean} of {len(self.runs)}",
            f"- nothing left even before it: {early} of {len(self.runs)}",
        ]
        lines += [f"- killed after {run.after_s:.1f} s: {'; '.join(run.left)}" for run in self.runs if run.left]
        return "\n".join(lines)


def run(results_dir: Path, provider: Name, count: int) -> int:
    """Kill that many runs and store what was seen; returns 0 when nothing was left of any. Raises: SandboxError."""
    found = KillRuns(provider=provider)
    with tempfile.TemporaryDirectory(prefix="ratchet-kills-") as folder:
        for number in range(count):
            found.runs.append(_kill_one(Path(folder), f"kill-{number}", provider))
            print(f"{number + 1} of {count}: {found.runs[-1].left or 'nothing left'}", flush=True)
    print(f"\n{found.page()}\n{found.write(results_dir)}")
    return 0 if not any(run.left for run in found.runs) else 1


def _kill_one(folder: Path, name: str, provider: Name) -> Killed:
    what = ["--target", str(TASK), "--entry", "bench.py", "--python", sys.executable]
    where = ["--runs-dir", str(folder), "--run-id", name, "--sandbox", provider]
    command = [sys.executable, "-m", "agent", "run", *what, *where]
    moment = random.uniform(0.2, LATEST_S)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as agent:
        time.sleep(moment)
        agent.kill()
    place = folder / name / "sandbox"
    sandbox = choose.make(provider, Wanted(sys.executable, place))
    killed = Killed(after_s=round(moment, 3))
    killed.before_next_start = _left(folder / name, agent.pid, sandbox)
    killed.ended_by_next_start = sandbox.reap()
    deadline = time.monotonic() + _GRACE_S
    while (left := _left(folder / name, agent.pid, sandbox)) and time.monotonic() < deadline:
        time.sleep(0.2)
    killed.left = left
    return killed


def _left(run_dir: Path, agent: int, sandbox: Sandbox) -> list[str]:
    """Containers of that agent, and processes, mounts and records of that run."""
    found = []
    if sandbox.name == "docker":
        from sandbox.docker.engine import AGENT_LABEL, Engine

        found += [
            f"container {each[:12]}" for each, labels in Engine().labelled() if f":{agent}:" in labels[AGENT_LABEL]
        ]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(run_dir) + b"/" in words and int(process.name) != os.getpid():
            found.append(f"process {process.name}")
    mounts = Path("/proc/self/mountinfo").read_text()
    found += [f"mount {line.split()[4]}" for line in mounts.splitlines() if str(run_dir) in line]
    records = run_dir / "sandbox" / "records"
    found += [f"record {path.name}" for path in (records.iterdir() if records.is_dir() else ())]
    return found
