"""Whether commands of a run that each end by --stop-after come to anything, so that a loop of them does not go on for
ever: what needs more than one of them from its beginning to its end is begun anew by each.

Refuses to say what it is that takes so long: that was told while it was going on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError

from agent.errors import AgentError
from agent.guard import Stopped
from agent.records.atomic_file import write_atomically

FILE = "standing.json"
MOST_IN_VAIN = 2  # commands; one may have come to what it could not finish near its end
# what a command writes whatever it comes to
_LEFT_OUT = frozenset({"work", "sandbox", "run.json", "run.lock", "exchanges.jsonl", FILE})


class SliceTooShort(AgentError):
    """Commands in a row ended by --stop-after with nothing new: what they were at needs more time than that."""

    exit_status = 58


class Standing(BaseModel):
    """Of commands in a row, each ended by its time and with nothing new on disk."""

    in_vain: int = 0
    seconds: float = 0.0
    """The longest that one of them had."""


@contextlib.contextmanager
def noted(run_dir: Path, seconds: float | None) -> Iterator[None]:
    """A command that has so long, None for all the time there is: whether its time ended it with nothing new."""
    before = of(run_dir) if seconds is not None else ""
    try:
        yield
    except Stopped as stopped:
        if seconds is not None and stopped.signal_number == signal.SIGALRM:
            ended_by_time(run_dir, before, seconds)
        raise


def of(run_dir: Path) -> str:
    """A digest of what is on disk of a run, by names and sizes."""
    whole = hashlib.sha256()
    for line in _listed(run_dir, _LEFT_OUT):
        whole.update(line)
    return whole.hexdigest()


def _listed(folder: Path, leave_out: frozenset[str] = frozenset()) -> Iterator[bytes]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name in leave_out or entry.name.startswith(("checkpoint", ".")):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _listed(Path(entry.path))
        else:
            with contextlib.suppress(FileNotFoundError):
                yield os.fsencode(f"{entry.path}\0{entry.stat(follow_symlinks=False).st_size}\0")


def check(run_dir: Path, seconds: float | None) -> None:
    """Before a command that has so long; None is all the time there is. Raises: SliceTooShort."""
    known = _read(run_dir)
    if seconds is None or seconds > known.seconds or known.in_vain < MOST_IN_VAIN:
        return
    message = f"The last {known.in_vain} commands of this run ended by --stop-after, and none of them came to anything."
    raise SliceTooShort(message, hint=f"Give it more than {known.seconds:.0f} s at a time, or leave --stop-after out.")


def ended_by_time(run_dir: Path, before: str, seconds: float) -> None:
    """Note that a command had so long and was stopped. `before` is what was there when it began."""
    known = _read(run_dir) if of(run_dir) == before else Standing(in_vain=-1)
    found = Standing(in_vain=known.in_vain + 1, seconds=max(known.seconds, seconds))
    write_atomically(run_dir / FILE, found.model_dump_json() + "\n")


def _read(run_dir: Path) -> Standing:
    try:
        return Standing.model_validate_json((run_dir / FILE).read_bytes())
    except (OSError, ValidationError):
        return Standing()
