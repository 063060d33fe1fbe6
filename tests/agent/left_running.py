"""Which processes a run has left behind."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

_PATIENCE_S = 20.0
_DYING_PATIENCE_S = 100.0  # what has been sent a SIGKILL may hang in the kernel for as long as a slow disk keeps it


def left_running(folder: Path) -> list[str]:
    """All processes but this one that name a folder in their command line, or work there: pid, state, command line."""
    found, named = [], re.compile(re.escape(str(folder)) + r"(?![\w-])")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            works_in = str((process / "cwd").readlink())
            if named.search(f"{command} {works_in}") and int(process.name) != os.getpid():
                found.append(f"{process.name} {_state(process)} {command}")
        except OSError:
            continue
    return found


def left_running_for_good(folder: Path) -> list[str]:
    """What of it does not go by itself; longer is waited only while the kernel is about to end all that is left."""
    begun = time.monotonic()
    while found := left_running(folder):
        waited = time.monotonic() - begun
        if waited > _DYING_PATIENCE_S or (waited > _PATIENCE_S and not all(map(_is_dying, found))):
            break
        time.sleep(0.1)
    return found


def _state(process: Path) -> str:
    fields = (process / "stat").read_text(errors="replace").rpartition(") ")[2].split()
    return f"[{fields[0]}, child of {fields[1]}, {(process / 'wchan').read_text()}]"


def _is_dying(found: str) -> bool:
    """Whether a SIGKILL has reached it; what has gone meanwhile is dead as well."""
    try:
        status = Path("/proc", found.split()[0], "status").read_text(errors="replace")
    except OSError:
        return True
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)$", status, re.MULTILINE)
    return any(int(signals, 16) >> (signal.SIGKILL - 1) & 1 for signals in pending)
