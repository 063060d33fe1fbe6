"""Run the tasks of `evals/tasks/` with `agent run`, one after the other, and store a table of what was kept.

Refuses to score: a row says what the run's own report says, failures included.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agent import environment
from agent.errors import WrongUsage
from agent.records import run_folder
from agent.records.run_folder import RunFolder
from agent.reporting import report, wording
from evals import predicted
from evals.result_file import ResultFile
from tools.judging.accept import SpeedupInterval

TASKS = Path(__file__).parent / "tasks"
ENTRY = "bench.py"
WHY_WIDTH = 200
STOPPED = 128 + signal.SIGALRM  # exit status of a run whose --stop-after is over


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

    @property
    def told(self) -> str:
        """What was kept, or how it ended, as a cell of a table."""
        return _cell("; ".join(self.kept) or self.outcome)

    @property
    def gpu(self) -> str:
        """What it was measured on, empty for a CPU."""
        guest = ((self.report or {}).get("environment") or {}).get("guest") or {}
        return str(guest.get("gpu_name") or "")


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
            lines.append(
                f"| {row.task} | {row.told} | {over[0]} | {over[1]} | {row.attempts} | {wording.duration(row.wall_s)} |"
            )
        return "\n".join(lines)

    def steps(self) -> str:
        """What each step of the ten tried and kept, or why it did nothing."""
        rows = [(row.task, report.Report.model_validate(row.report)) for row in self.rows if row.report]
        lines = ["| task | step | kept of tried | why |", "| --- | --- | --- | --- |"]
        for task, found in rows:
            for step in found.steps:
                if step.attempts or step.status != "done":
                    why = _cell(step.reason, WHY_WIDTH)
                    lines.append(f"| {task} | {step.name} | {step.kept} of {step.attempts} | {why} |")
        return "\n".join(lines) if rows else ""

    def predictions(self) -> str:
        """What each step could gain by the profile, against what it gained; empty where nothing was kept."""
        reports = [(row.task, report.Report.model_validate(row.report)) for row in self.rows if row.report]
        return predicted.table(each for task, one in reports for each in predicted.gained(task, one))


def _cell(text: str, width: int = 0) -> str:
    return wording.one_line(text, width).replace("|", "\\|")


def tasks(names: Sequence[str]) -> list[str]:
    """The tasks of these names, all for none: folders of `evals/tasks`. A folder without bench.py has a task in each of
    its scripts, `unchanged/llama`, and stands for all of them. Raises: WrongUsage.
    """
    folders: dict[str, list[str]] = {}
    for folder in sorted(path for path in TASKS.iterdir() if path.is_dir()):
        scripts = [f"{folder.name}/{path.stem}" for path in sorted(folder.glob("*.py"))]
        if scripts:
            folders[folder.name] = [folder.name] if (folder / ENTRY).exists() else scripts
    known = folders | {name: [name] for scripts in folders.values() for name in scripts}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WrongUsage(f"There is no task {unknown[0]}.", hint=f"The tasks are {', '.join(folders)}.")
    return [task for name in names or folders for task in known[name]]


@dataclass(frozen=True)
class How:
    """How tasks are run: `options` are further ones of `agent run`. With a folder for the runs, one that stopped after
    its time goes on when it is asked for again.
    """

    options: tuple[str, ...] = ()
    runs_dir: Path | None = None
    stop_after: str | None = None


def run(names: Sequence[str], results_dir: Path, how: How = How()) -> int:
    """Run the named tasks. 0 when every run ended in order; 142 when one stopped after its time, and is not stored.

    Raises: WrongUsage, RunDamaged.
    """
    wanted = tasks(names)
    if how.stop_after is not None and (how.runs_dir is None or len(wanted) != 1):
        raise WrongUsage("--stop-after is for one task with a --runs-dir, where the run can go on.")
    for name in wanted:
        _may_go_on(name, how)
    table = Table(date=datetime.now(UTC), command=run_folder.this_command(), environment=environment.describe())
    file = ResultFile(results_dir, "tasks", table.date)
    for name in wanted:
        print(f"{name}:", flush=True)
        table.rows.append(run_one(name, how))
        if table.rows[-1].exit_status == STOPPED:
            return STOPPED
        file.write(table, _page(table))
    print(f"\n{table.markdown()}\n\n{file}")
    return 0 if all(row.exit_status == 0 for row in table.rows) else 1


def run_one(name: str, how: How = How()) -> Row:
    """One run of a task, or what is left of it."""
    begun = time.monotonic()
    run_id = _run_id(name)
    with contextlib.ExitStack() as held:
        runs_dir = how.runs_dir or Path(held.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-evals-")))
        asked = ["resume", run_id] if (runs_dir / run_id).exists() else _new_run(name, run_id, how.options)
        stop = ["--stop-after", how.stop_after] if how.stop_after else []
        command = [sys.executable, "-m", "agent", *asked, "--runs-dir", str(runs_dir), *stop]
        status = subprocess.run(command, check=False).returncode
        wall_s = time.monotonic() - begun
        try:
            found = report.read(runs_dir / run_id)
        except OSError:
            return Row(task=name, outcome=f"ended with exit status {status}", wall_s=wall_s, exit_status=status)
    return Row(
        task=name,
        outcome=found.outcome,
        kept=[kept.title for kept in found.kept],
        attempts=len(found.attempts),
        speedup=found.speedup,
        speedup_over_compile=found.speedup_over_compile,
        wall_s=found.wall_s if how.runs_dir else wall_s,
        exit_status=status,
        report=found.model_dump(mode="json"),
    )


def _may_go_on(name: str, how: How) -> None:
    """Raises: WrongUsage where a run that is there would not give what was asked for; RunDamaged."""
    if how.runs_dir is None or not (how.runs_dir / _run_id(name)).exists():
        return
    folder = RunFolder(how.runs_dir / _run_id(name))
    if (folder.path / "report.json").exists():
        raise WrongUsage(
            f"{folder.path} is finished, and its numbers would be stored as new ones.",
            hint="Its report.md has them; for new ones name another --runs-dir.",
        )
    begun, asked = folder.read().command, [*_new_run(name, folder.run_id, how.options), "--runs-dir"]
    if begun[1 : len(asked) + 1] != asked:
        raise WrongUsage(
            f"{folder.path} was begun with other options: {shlex.join(begun)}",
            hint="Name the same, or another --runs-dir.",
        )


def _run_id(name: str) -> str:
    return name.replace("/", "-")


def _new_run(name: str, run_id: str, options: Sequence[str]) -> list[str]:
    folder, _, script = name.partition("/")
    target, entry = str(TASKS / folder), f"{script}.py" if script else ENTRY
    return [
        "run",
        "--target",
        target,
        "--entry",
        entry,
        "--python",
        sys.executable,
        "--run-id",
        run_id,
        "--yes",
        *options,
    ]


def _page(table: Table) -> str:
    host = table.environment.host
    devices = [*sorted({row.gpu for row in table.rows} - {""}), host.cpu_model]
    head = f"Measured {table.date:%Y-%m-%d} on {', '.join(devices)}, {host.cpu_cores} cores, {host.os}."
    begin = f"# Tasks\n\n{head}\nCommand: `{' '.join(table.command)}`"
    parts = [begin, table.markdown(), table.predictions(), table.steps()]
    return "\n\n".join(part for part in parts if part) + "\n"
