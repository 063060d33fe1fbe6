"""Which processes a run has left behind."""

from __future__ import annotations

import os
from pathlib import Path


def left_running(folder: Path) -> list[str]:
    """Command lines of all processes but this one that name a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if str(folder) in command and int(process.name) != os.getpid():
            found.append(command)
    return found
