"""Which processes a run has left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PATIENCE_S = 120.0  # what has been killed may hang in the kernel for as long as a slow disk keeps it waiting


def left_running(folder: Path) -> list[str]:
    """All processes but this one whose command line names a folder: pid, state, where it waits, command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            if str(folder) in command and int(process.name) != os.getpid():
                found.append(f"{process.name} {_state(process)} {command}")
        except OSError:
            continue
    return found


def left_running_for_good(folder: Path) -> list[str]:
    """What of it does not go by itself within minutes."""
    deadline = time.monotonic() + _PATIENCE_S
    while (found := left_running(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _state(process: Path) -> str:
    fields = (process / "stat").read_text().rpartition(") ")[2].split()
    return f"[{fields[0]}, child of {fields[1]}, {(process / 'wchan').read_text()}]"
