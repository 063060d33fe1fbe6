"""Run the tasks of `evals/tasks/` with `agent run`, one after the other, and store a table of what was kept.

Refuses to score: a row says what the run's own report says, failures included.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agent import environment
from agent.errors import WrongUsage
from agent.records import run_folder
from agent.reporting import report, wording
from evals import predicted
from evals.result_file import ResultFile
from tools.judging.accept import SpeedupInterval

TASKS = Path(__file__).parent / "tasks"
ENTRY = "bench.py"


class Row(BaseModel):
    """One task: what was kept, how much faster the whole is, how long it took."""

    task: str
    outcome: str
    kept: list[str] = Field(default_factory=list)
    attempts: int = 0
    speedup: SpeedupInterval | None = None
    speedup_over_compile: SpeedupInterval | None = None
    wall_s: float
    exit_status: int
    report: dict[str, Any] | None = None
    """The run's whole `report.json`, with the raw numbers of every comparison."""


class Table(BaseModel):
    """One execution of `evals run`."""

    date: datetime
    command: list[str]
    environment: environment.Environment
    rows: list[Row] = Field(default_factory=list)

    def markdown(self) -> str:
        lines = [
            "| task | kept | over eager | over best torch.compile | attempts | time |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for row in self.rows:
            over = [wording.speedup(s) if s else "–" for s in (row.speedup, row.speedup_over_compile)]
            kept = "; ".join(row.kept) or row.outcome
            lines.append(
                f"| {row.task} | {kept} | {over[0]} | {over[1]} | {row.attempts} | {wording.duration(row.wall_s)} |"
            )
        return "\n".join(lines)

    def predictions(self) -> str:
        """What each step could gain by the profile, against what it gained; empty where nothing was kept."""
        reports = [(row.task, report.Report.model_validate(row.report)) for row in self.rows if row.report]
        return predicted.table(each for task, one in reports for each in predicted.gained(task, one))


def run(names: Sequence[str], results_dir: Path) -> int:
    """Run the named tasks (all when none is named); returns 0 when every run ended in order. Raises: WrongUsage."""
    known = sorted(path.parent.name for path in TASKS.glob(f"*/{ENTRY}"))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WrongUsage(f"There is no task {unknown[0]}.", hint=f"The tasks are {', '.join(known)}.")
    table = Table(date=datetime.now(UTC), command=run_folder.this_command(), environment=environment.describe())
    file = ResultFile(results_dir, "tasks", table.date)
    for name in names or known:
        print(f"{name}:", flush=True)
        table.rows.append(run_one(name))
        file.write(table, _page(table))
    print(f"\n{table.markdown()}\n\n{file}")
    return 0 if all(row.exit_status == 0 for row in table.rows) else 1


def run_one(name: str, *options: str) -> Row:
    """One run of a task; `options` are further ones of `agent run`."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ratchet-evals-") as folder:
        command = [
            sys.executable,
            "-m",
            "agent",
            "run",
            "--target",
            str(TASKS / name),
            "--entry",
            ENTRY,
            "--python",
            sys.executable,
            "--runs-dir",
            folder,
            "--run-id",
            name,
            "--yes",
            *options,
        ]
        status = subprocess.run(command, check=False).returncode
        wall_s = time.monotonic() - begun
        try:
            found = report.read(Path(folder) / name)
        except OSError:
            return Row(task=name, outcome=f"ended with exit status {status}", wall_s=wall_s, exit_status=status)
    return Row(
        task=name,
        outcome=found.outcome,
        kept=[kept.title for kept in found.kept],
        attempts=len(found.attempts),
        speedup=found.speedup,
        speedup_over_compile=found.speedup_over_compile,
        wall_s=wall_s,
        exit_status=status,
        report=found.model_dump(mode="json"),
    )


def _page(table: Table) -> str:
    host = table.environment.host
    head = f"Measured {table.date:%Y-%m-%d} on {host.cpu_model}, {host.cpu_cores} cores, {host.os}."
    parts = [f"# Tasks\n\n{head}\nCommand: `{' '.join(table.command)}`", table.markdown(), table.predictions()]
    return "\n\n".join(part for part in parts if part) + "\n"
