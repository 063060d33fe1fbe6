"""How the progress of a run is shown: JSON lines, a live view on a terminal, or plain lines.

Lines are flushed one by one, so that a log ends where the run did.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TextIO

from agent.reporting.progress import Event, Progress
from tools.judging.accept import SpeedupInterval


class PlainLines(Progress):
    """Lines that start with the time since the start."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._start = stream, clock, clock()

    def emit(self, event: Event) -> None:
        elapsed = int(self._clock() - self._start)
        stamp = f"{elapsed // 3600}:{elapsed // 60 % 60:02d}:{elapsed % 60:02d}"
        for line in event.lines():
            print(f"{stamp}  {line}\n", end="", file=self._stream, flush=True)  # at once: other threads write, too


class JsonLines(PlainLines):
    """One JSON object a line: the event's name in `event`, its fields, the wall time, the seconds since the start."""

    def emit(self, event: Event) -> None:
        row: dict[str, Any] = {
            "event": re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower(),  # `StepEnded` is `step_ended`
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "elapsed_s": round(self._clock() - self._start, 3),
            **asdict(event),
        }
        print(json.dumps(row, default=SpeedupInterval.model_dump) + "\n", end="", file=self._stream, flush=True)


def open_progress(*, as_json: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> Progress:
    """JSON lines on stdout when asked for, a live view when stderr is a terminal, else plain lines on stderr."""
    out, err = stdout or sys.stdout, stderr or sys.stderr
    if as_json:
        return JsonLines(out)
    if err.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from agent.reporting.progress_live import LiveView  # rich takes a while to import

        return LiveView(err)
    return PlainLines(err)
