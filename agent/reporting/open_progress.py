"""How the progress of a run is shown: JSON lines, a live view on a terminal, or plain lines."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from agent.reporting.progress import Progress
from agent.reporting.progress_lines import JsonLines, PlainLines


def open_progress(*, as_json: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> Progress:
    """JSON lines on stdout when asked for, a live view when stderr is a terminal, else plain lines on stderr."""
    out, err = stdout or sys.stdout, stderr or sys.stderr
    if as_json:
        return JsonLines(out)
    if err.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from agent.reporting.progress_live import LiveView  # rich takes a while to import

        return LiveView(err)
    return PlainLines(err)
