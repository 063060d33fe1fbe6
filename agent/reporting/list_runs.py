"""The list that `agent runs` prints: one line for each run, oldest first.

Does not judge a run by anything but its files and its lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from agent.errors import RunDamaged
from agent.records import run_folder
from agent.records.run_folder import RunFolder
from agent.reporting import report, wording
from tools.plain_text import one_line


def lines(runs_dirs: Sequence[Path]) -> Iterator[str]:
    """Id, status, target, and what came of it."""
    folders = run_folder.every(runs_dirs)
    if not folders:
        yield f"no runs in {' or '.join(str(folder) for folder in runs_dirs)}"
        return
    width = max(len(folder.run_id) for folder in folders)
    for folder in folders:
        yield f"{folder.run_id:{width}}  {folder.status():11}  {one_line(_about(folder))}"


def _about(folder: RunFolder) -> str:
    try:
        about = folder.about()
    except RunDamaged as error:
        return error.message
    try:
        made = report.read(folder.path)
    except FileNotFoundError:
        return about
    except (OSError, ValidationError) as error:
        return f"{about}: report.json cannot be read: {str(error).splitlines()[0]}"
    gain = "" if made.speedup is None else f", {wording.speedup(made.speedup)}"
    return f"{about}: {made.outcome}{gain}"
