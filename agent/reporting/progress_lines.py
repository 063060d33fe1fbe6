"""Progress for logs and for programs: one plain line, or one JSON object, for each event.

Plain on purpose: nothing is redrawn, and every line is flushed, so that a log ends where the run did.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TextIO

from agent.reporting import wording
from agent.reporting.progress import (
    Answering,
    CandidateProposed,
    Event,
    Judging,
    Note,
    Progress,
    RunEnded,
    RunStarted,
    StackGrew,
    StackShrank,
    StepEnded,
    StepStarted,
    VerdictReached,
)
from tools.judging.accept import SpeedupInterval

Clock = Callable[[], float]


class PlainLines(Progress):
    """Lines that start with the time since the start."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._start = clock()

    def emit(self, event: Event) -> None:
        elapsed = int(self._clock() - self._start)
        stamp = f"{elapsed // 3600}:{elapsed // 60 % 60:02d}:{elapsed % 60:02d}"
        for line in describe(event):
            print(f"{stamp}  {line}", file=self._stream, flush=True)


class JsonLines(PlainLines):
    """One JSON object a line: the event's name in `event`, its fields, the wall time, the seconds since the start."""

    def emit(self, event: Event) -> None:
        row = {
            "event": event_name(event),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "elapsed_s": round(self._clock() - self._start, 3),
            **asdict(event),
        }
        print(json.dumps(row, default=SpeedupInterval.model_dump), file=self._stream, flush=True)


def event_name(event: Event) -> str:
    """`StepEnded` is `step_ended`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def describe(event: Event) -> list[str]:
    """The event in words, one entry a line; foreign text is cleaned of control characters."""
    return [wording.one_line(line) for line in _words(event)]


def _words(event: Event) -> list[str]:
    match event:
        case RunStarted():
            verb = "resuming" if event.resumed else "run"
            lines = [f"{verb} {event.run_id}: {event.target}, entry {event.entry}, on {event.device}"]
            lines.append(f"files of this run: {event.run_dir}")
            held = "contained" if event.contained else "uncontained, the target's code can do what you can do"
            lines.append(f"sandbox {event.sandbox}: {held}")
            return lines
        case StepStarted():
            return [f"step {event.step}"]
        case StepEnded():
            kept = f", {wording.count(event.kept, 'change')} kept" if event.kept else ""
            return [f"step {event.step}: {event.status}{kept}{': ' + event.reason if event.reason else ''}"]
        case CandidateProposed():
            return [f"candidate {event.attempt}: {candidate(event)}"]
        case Judging():
            return [f"judging {event.what}: {judging(event)}"]
        case Answering():
            return [f"{event.model} is answering, {event.characters:,} characters"]
        case VerdictReached():
            return [f"candidate {event.attempt} {event.verdict}{_measured(event.speedup)}: {event.why}"]
        case StackGrew():
            return [f"stack: {event.count}. {event.title} [{event.commit[:10]}]{_measured(event.speedup)}"]
        case StackShrank():
            return [f"stack: {event.title} [{event.commit[:10]}] dropped, {event.count} left: {event.why}"]
        case Note():
            return [event.text]
        case RunEnded():
            return ending(event)


def candidate(event: CandidateProposed) -> str:
    """`fuse q, k and v (predicted 1.08×)`."""
    return event.title if event.predicted_gain is None else f"{event.title} (predicted {event.predicted_gain:.2f}×)"


def judging(event: Judging) -> str:
    """`confirmation, 7 of 12 restarts`."""
    return f"{event.phase}, {event.done} of {event.of} {event.unit}" if event.of else event.phase


def ending(event: RunEnded) -> list[str]:
    """How a run ended; the last line names the report and where the result is."""
    gain = ""
    if event.speedup is not None:
        gain = f", {wording.speedup(event.speedup)} over the unmodified target"
    if event.speedup_over_compile is not None:
        gain += f", {wording.speedup(event.speedup_over_compile)} over the best plain torch.compile"
    where = f", branch {event.branch}" if event.branch else f", result {event.result}" if event.result else ""
    return [f"{event.outcome}{gain}", f"report {event.report}{where}"]


def _measured(speedup: SpeedupInterval | None) -> str:
    return "" if speedup is None else f", {wording.speedup(speedup)}"
