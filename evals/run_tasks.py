"""Run the tasks of `evals/tasks/` with `agent run`, one after the other, and append a row for each to the results."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent import environment
from agent.errors import WrongUsage
from agent.records import run_folder
from agent.reporting import report, wording
from evals import results
from evals.results import Result

TASKS = Path(__file__).parent / "tasks"
ENTRY = "bench.py"


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


def run(names: Sequence[str], results_dir: Path, options: Sequence[str] = (), runs_dir: Path | None = None) -> int:
    """Run the named tasks with further options of `agent run`; the runs are kept where `runs_dir` is given.

    Returns 0 when every run ended in order. Raises: WrongUsage.
    """
    wanted = tasks(names)
    if runs_dir and (there := [name for name in wanted if (runs_dir / _run_id(name)).exists()]):
        raise WrongUsage(f"{runs_dir / _run_id(there[0])} is there already.", hint="Name another --runs-dir.")
    statuses = []
    with tempfile.TemporaryDirectory(prefix="ratchet-evals-") as temporary:
        for name in wanted:
            print(f"{name}:", flush=True)
            status, row, samples = run_one(name, runs_dir or Path(temporary), options)
            if samples:
                row = row.model_copy(update={"samples": results.write_samples(results_dir, row.date, name, samples)})
            results.append(results_dir, row)
            statuses.append(status)
            print(told(row), flush=True)
    print(f"\nin {results_dir / results.ROWS}")
    return 0 if not any(statuses) else 1


def told(row: Result) -> str:
    """A row for a person, in one line."""
    took = wording.duration(row.minutes * 60)
    if not row.kept:
        return f"{row.task}: {row.outcome}, {took}"
    over = [wording.speedup(each) if each else "not measured" for each in (row.speedup, row.over_one_line)]
    return f"{row.task}: {row.outcome}, {over[0]} over eager, {over[1]} over the best plain torch.compile, {took}"


def run_one(name: str, runs_dir: Path, options: Sequence[str]) -> tuple[int, Result, dict[str, object]]:
    """One run of a task: its exit status, its row, and its report with the raw samples of the whole."""
    date, begun = datetime.now(UTC).replace(microsecond=0), time.monotonic()
    command = [sys.executable, "-m", "agent", *_new_run(name, options), "--runs-dir", str(runs_dir)]
    commit, status = results.commit(), subprocess.run(command, check=False).returncode
    folder = runs_dir / _run_id(name)
    try:
        found = report.read(folder)
    except OSError:
        found = None
    measured_on = found.environment if found else environment.describe()
    row = Result(
        date=date,
        task=name,
        device=results.device(measured_on),
        torch=(measured_on.guest.torch if measured_on.guest else None) or "",
        commit=commit,
        command=shlex.join(run_folder.this_command()),
        outcome=found.outcome if found else f"ended with exit status {status}",
        kept=[str(kept.key or kept.title) for kept in found.kept] if found else [],
        speedup=found.speedup if found else None,
        over_one_line=found.speedup_over_compile if found else None,
        one_line=found.baselines.best if found and found.baselines else "",
        minutes=round((time.monotonic() - begun) / 60, 2),
        fingerprint=results.fingerprint(measured_on),
    )
    if found is None:
        return status, row, {}
    whole = folder / "whole.json"
    return (
        status,
        row,
        {
            "report": found.model_dump(mode="json"),
            "whole": json.loads(whole.read_text()) if whole.exists() else None,
        },
    )


def _run_id(name: str) -> str:
    return name.replace("/", "-")


def _new_run(name: str, options: Sequence[str]) -> list[str]:
    folder, _, script = name.partition("/")
    entry = f"{script}.py" if script else ENTRY
    where = ["--target", str(TASKS / folder), "--entry", entry, "--python", sys.executable]
    return ["run", *where, "--run-id", _run_id(name), "--yes", *options]
