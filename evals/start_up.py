"""How long the command line takes to answer `agent --help`, beside an interpreter that does nothing.

Refuses to judge: what it may import is a test (`tests/test_imports.py`), how long it takes is the machine's affair.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from pydantic import BaseModel, Field

from agent import environment
from agent.records import run_folder
from evals.result_file import ResultFile

ROUNDS = 30
COMMANDS = {
    "agent --help": [sys.executable, "-m", "agent", "--help"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


class StartUp(BaseModel):
    """One execution of `evals start-up`; seconds of every start, in turns."""

    date: datetime
    command: list[str]
    environment: environment.Environment
    seconds: dict[str, list[float]] = Field(default_factory=dict)

    def page(self) -> str:
        host = self.environment.host
        lines = [
            "# Start-up",
            "",
            f"Measured {self.date:%Y-%m-%d} on {host.cpu_model}, {host.cpu_cores} cores, {host.os}. "
            f"Command: `{' '.join(self.command)}`. {ROUNDS} starts of each, in turns.",
            "",
            "| command | median | fastest | slowest |",
            "| --- | --- | --- | --- |",
        ]
        for name, seconds in self.seconds.items():
            lines.append(f"| `{name}` | {median(seconds):.3f} s | {min(seconds):.3f} s | {max(seconds):.3f} s |")
        return "\n".join(lines) + "\n"


def run(results_dir: Path) -> int:
    """Measure and store; returns 0."""
    found = StartUp(date=datetime.now(UTC), command=run_folder.this_command(), environment=environment.describe())
    file = ResultFile(results_dir, "start-up", found.date)
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            begun = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            found.seconds.setdefault(name, []).append(round(time.perf_counter() - begun, 4))
    file.write(found, found.page())
    print(f"{found.page()}\n{file}")
    return 0
