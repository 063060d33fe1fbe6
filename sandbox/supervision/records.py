"""A record on disk of every command that was started, so that a later agent can end what a killed one left.

Nothing is ended whose agent still runs.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.kernel import cgroup, ending, process_tree

_GRACE_S = 2.0  # a supervisor whose agent was killed is already at work ending its tree


class Identity(BaseModel):
    """A process named for good: a pid is given out again, a pid with its starting time is not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        found = process_tree.stat(pid)
        return None if found is None else cls(pid=pid, started_ticks=found.started_ticks)

    @classmethod
    def of_living(cls, pid: int) -> Identity:
        """Raises: ProcessLookupError."""
        found = cls.of(pid)
        if found is None:
            raise ProcessLookupError(f"there is no process {pid}")
        return found

    @property
    def alive(self) -> bool:
        found = process_tree.stat(self.pid)
        return found is not None and found.started_ticks == self.started_ticks and found.alive


class Record(BaseModel):
    """One started command: who started it, what watches it, and what it leaves on the machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path = Path()  # of this record; beside it lies what its supervisor complains of
    role: str
    agent: Identity
    supervisor: Identity | None = None  # None until it has been started
    folder: Path
    channel: str
    groups: tuple[Path, ...] = ()

    @property
    def log(self) -> Path:
        return self.path.with_suffix(".log")

    @property
    def litter(self) -> list[str]:
        """Files and folders to remove, in this order, when the agent is gone and cannot."""
        return [str(path) for path in (self.channel, self.folder, self.log, self.path)]

    def naming(self, supervisor: int) -> Record:
        return self.model_copy(update={"supervisor": Identity.of(supervisor)})

    def write(self) -> None:
        """Raises: OSError."""
        part = self.path.with_suffix(".part")
        part.write_text(self.model_dump_json())
        part.replace(self.path)

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for suffix in (".log", ".part", ".json"):
            self.path.with_suffix(suffix).unlink(missing_ok=True)


def reap(folder: Path) -> list[str]:
    """End what is left of commands whose agent has died, and forget them; returns what was still running."""
    ended = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = Record.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            path.unlink(missing_ok=True)  # not one of ours, or damaged: nothing can be learned from it
            continue
        if record.agent.alive:
            continue
        count = _end(record)
        if count:
            processes = "1 process" if count == 1 else f"{count} processes"
            ended.append(f"{record.role}: {processes} of an agent that was killed")
        record.model_copy(update={"path": path}).forget()
    return ended


def _end(record: Record) -> int:
    ended: set[int] = set()
    supervisor = record.supervisor
    if supervisor is not None:
        deadline = time.monotonic() + _GRACE_S
        while supervisor.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        if supervisor.alive:
            ended.update(process_tree.descendants(supervisor.pid))
            ending.end_descendants(supervisor.pid)
            ending.end([supervisor.pid])
            ended.add(supervisor.pid)
    for group in record.groups:
        ended.update(cgroup.end_group(group))
    ended.update(end_marked(record.channel))
    return len(ended)


def end_marked(channel: str) -> list[int]:
    """Kill processes that were started with this channel in their environment, and left the tree since.

    The last net, for what a killed supervisor could not end: a process that rewrites its environment slips it.
    """
    mark = f"RATCHET_CHANNEL={channel}".encode()
    found = []
    for pid in process_tree.every_process():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    ending.end(found)
    return found
