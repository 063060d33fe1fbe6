"""Rows of `results.jsonl`, raw samples beside them, and the page that is generated from the rows.

One row for each task, machine and commit. Rows are appended and never changed. Paths below the repository, the home and
the folder for temporary files are written as `.`, `~` and `$TMPDIR`, so that a result can be published.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from agent import environment
from agent.environment import Environment
from agent.errors import WrongUsage
from agent.records import run_folder
from agent.records.atomic_file import write_atomically
from agent.reporting import wording
from tools.judging.accept import SpeedupInterval
from tools.plain_text import one_line

ROOT = Path(__file__).resolve().parents[1]
ROWS, PAGE = "results.jsonl", "RESULTS.md"
HEAD = """\
# Results

Generated from [results.jsonl](results.jsonl) by `evals results`: for each task and machine the newest row. Nothing has
run on an AMD GPU yet.

- *Over eager*: time of the unmodified task over time of the task with all kept changes, as the median over paired
  restarts with a 95 % interval; a geometric mean where a task has several shapes.
- *Over one line*: the same against the fastest mode of plain `torch.compile` in the same restarts.
- *Kept*: the changes by key. Rows before 2026-11-28 17:00 UTC name them by step and title.
- *Time*: wall time of the whole run. *Commit*: of this repository when the run began.

Each row of `results.jsonl` also has the command, the torch version, a digest of the recorded environment, and the file
with the run's report and raw samples (`samples/`; `zcat` shows it). [evidence/](evidence) has what code and texts cite
besides. Older pages, profiles and patches are in the history of this repository, in `evals/results/` up to 2026-11-28.
"""


class Result(BaseModel):
    """One run of a task."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    date: datetime
    task: str
    device: str
    """Name of the GPU, else of the processor with its number of cores."""
    torch: str = ""
    commit: str
    """Of this repository; `+` at the end where the work tree had other changes."""
    command: str
    outcome: str
    kept: list[str] = Field(default_factory=list)
    """Keys of the kept changes, "rewriter place variant", in order; of rows before 2026-11-28 17:00 UTC step and title.
    """
    speedup: SpeedupInterval | None = None
    """Over eager; None where nothing was kept."""
    over_one_line: SpeedupInterval | None = None
    one_line: str = ""
    """Mode of plain `torch.compile` that was the fastest."""
    minutes: float
    fingerprint: str
    """First 16 digits of the SHA-256 of the recorded environment as canonical JSON."""
    samples: str = ""
    """File below `evals/results/` with the run's report and raw samples; empty where a run ended without a report."""


def device(found: Environment) -> str:
    gpu = found.guest.gpu_name if found.guest else None
    return gpu or f"{found.host.cpu_model}, {found.host.cpu_cores} cores"


def fingerprint(found: Environment) -> str:
    canonical = json.dumps(found.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def commit() -> str:
    """Of the repository that this file is in; empty outside of one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":/!evals/results")
    return git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


def append(folder: Path, row: Result) -> None:
    """Add a row and write the page again."""
    folder.mkdir(parents=True, exist_ok=True)
    line = portable(row.model_dump_json(exclude_defaults=True)) + "\n"
    with (folder / ROWS).open("ab") as file:  # one write to the end, so that runs side by side do not mix
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
    write_page(folder)


def read(folder: Path) -> list[Result]:
    """Raises: WrongUsage where there is no such file; pydantic.ValidationError where a line is not a row."""
    if not (folder / ROWS).is_file():
        raise WrongUsage(f"There is no {folder / ROWS}.")
    lines = (folder / ROWS).read_text(encoding="utf-8").splitlines()
    return [Result.model_validate_json(line) for line in lines]


def write_page(folder: Path) -> None:
    write_atomically(folder / PAGE, page(read(folder)))


def page(rows: Iterable[Result]) -> str:
    newest: dict[tuple[str, str], Result] = {}
    for row in sorted(rows, key=lambda each: each.date):
        if row.samples:
            newest[row.device, row.task] = row
    lines = [HEAD]
    for name in sorted({device for device, _ in newest}):
        head = "| task | over eager | over one line | kept | time | date | commit |"
        lines += [f"\n## {name}\n", head, "| --- " * 7 + "|"]
        lines += [_line(row) for (device, _), row in sorted(newest.items()) if device == name]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _line(row: Result) -> str:
    missing = "not measured" if row.kept else "–"
    over = [wording.speedup(each) if each else missing for each in (row.speedup, row.over_one_line)]
    kept = one_line("; ".join(row.kept) or row.outcome).replace("|", "\\|")
    time = wording.duration(row.minutes * 60)
    return f"| {row.task} | {over[0]} | {over[1]} | {kept} | {time} | {row.date:%Y-%m-%d} | {row.commit} |"


def write_samples(folder: Path, date: datetime, task: str, samples: dict[str, Any]) -> str:
    """Write the raw samples of a run; returns the name of the file. Raises: FileExistsError."""
    name = f"samples/{date:%Y%m%d-%H%M%S}-{task.replace('/', '-')}.json.gz"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("xb") as file:
        file.write(packed(json.dumps(samples, separators=(",", ":"))))
    return name


class Evidence(BaseModel):
    """One execution of an evaluation that is no run of a task, with all that it measured."""

    topic: ClassVar[str]
    title: ClassVar[str]
    date: datetime = Field(default_factory=lambda: datetime.now(UTC))
    command: list[str] = Field(default_factory=run_folder.this_command)
    environment: Environment = Field(default_factory=environment.describe)

    def body(self) -> str:
        """What was measured, in Markdown."""
        raise NotImplementedError

    def page(self) -> str:
        host = self.environment.host
        where = f"Measured {self.date:%Y-%m-%d} on {host.cpu_model}, {host.cpu_cores} cores, {host.os}"
        return f"# {self.title}\n\n{where}. Command: `{shlex.join(self.command)}`.\n{self.body()}\n"

    def write(self, folder: Path) -> Path:
        """Write the page, and all of it as compressed JSON beside; returns the page's path.

        A second call replaces the files of the first: an evaluation stores what it has as it goes on.
        """
        path = folder / "evidence" / self.topic / f"{self.date:%Y%m%d-%H%M%S}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json.gz").write_bytes(packed(self.model_dump_json()))
        write_atomically(path, portable(self.page()))
        return path


def packed(text: str) -> bytes:
    return gzip.compress(portable(text).encode(), mtime=0)


def portable(text: str) -> str:
    for folder, name in ((ROOT, "."), (Path.home(), "~"), (Path(tempfile.gettempdir()), "$TMPDIR")):
        if len(folder.parts) > 1:  # the home of a user without a name may be /
            text = re.sub(rf"{re.escape(str(folder))}(?!\.?[\w-])", name, text)
    return text
