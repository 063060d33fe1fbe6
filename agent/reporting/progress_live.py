"""Progress on a terminal: the steps, the candidate, what is being measured, the time, and the stack as it grows.

Draws only when an event arrives, and for the many events of a measurement at most twice a second: there is no
refresh thread, because it would take a core away from what is being timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

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
from tools.plain_text import one_line

REDRAW_S = 0.5
MAX_WIDTH = 100
_MARKS = {
    "waiting": ("·", "dim"),
    "running": ("▸", "bold cyan"),
    "done": ("✓", "green"),
    "nothing": ("–", "dim"),
    "skipped": ("–", "dim"),
    "failed": ("✗", "red"),
}


class LiveView(Progress):
    """One picture at the bottom of the terminal; verdicts and notes scroll by above it."""

    def __init__(
        self, stream: TextIO, clock: Callable[[], float] = time.monotonic, console: Console | None = None
    ) -> None:
        self._console = console or Console(file=stream, highlight=False)
        self._clock, self._start, self._drawn = clock, clock(), float("-inf")
        self._run: RunStarted | None = None
        self._steps: dict[str, tuple[str, str]] = {}  # name to status and reason
        self._candidate: CandidateProposed | None = None
        self._judging: Judging | Answering | None = None
        self._stack: list[StackGrew] = []
        self._ending: list[str] = []  # said last, below the picture
        # Redirecting would print every stray line through rich, and each would redraw.
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def emit(self, event: Event) -> None:
        self._take(event)
        now = self._clock()
        if isinstance(event, Judging) and now - self._drawn < REDRAW_S:
            return
        self._drawn = now
        self._live.update(self.picture(), refresh=True)

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._run = event
                self._steps = dict.fromkeys(event.steps, ("waiting", ""))
            case StepStarted():
                self._steps[event.step] = ("running", "")
                self._candidate = self._judging = None
            case StepEnded():
                kept = f"{wording.count(event.kept, 'change')} kept" if event.kept else ""
                self._steps[event.step] = (event.status, ": ".join(part for part in (kept, event.reason) if part))
                self._candidate = self._judging = None
            case CandidateProposed():
                self._candidate, self._judging = event, None
            case Judging() | Answering():
                self._judging = event
            case VerdictReached():
                self._judging = None
            case StackGrew():
                self._stack.append(event)
            case StackShrank():
                self._stack = [grown for grown in self._stack if grown.commit != event.commit]
            case RunEnded():
                self._candidate = self._judging = None
                self._ending = event.lines()
        if isinstance(event, RunStarted | VerdictReached | StackShrank | Note):
            for line in event.lines():
                self._console.print(Text(line))

    def picture(self) -> Group:
        """What is drawn; text is never read as markup, because titles may come from a target or a model."""
        width = min(MAX_WIDTH, self._console.width)
        lines = [Text()]
        if self._run is not None:
            elapsed = wording.duration(self._clock() - self._start)
            lines.append(Text(f"ratchet {self._run.run_id}  {self._run.device}  {elapsed}", style="bold"))
        lines += [self._step(number, step) for number, step in enumerate(self._steps, start=1)]
        if self._candidate is not None:
            lines += [Text(line) for line in self._candidate.lines()]
        if self._judging is not None:
            lines += [Text(line, style="cyan") for line in self._judging.lines()]
        lines += [self._grown(grown, width) for grown in self._stack]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Group(*lines)

    def _step(self, number: int, step: str) -> Text:
        status, reason = self._steps[step]
        mark, style = _MARKS[status]
        said = reason or ("" if status in ("waiting", "running", "done") else status)
        name = f" {number:2} {step:{max(map(len, self._steps))}}  "
        running = style if status == "running" else ""
        return Text.assemble((mark, style), (name, running), (one_line(said), "dim"))

    def _grown(self, grown: StackGrew, width: int) -> Text:
        """The gain and the commit stay, whatever the length of the title."""
        gain = "" if grown.speedup is None else wording.speedup(grown.speedup)
        start, end = f"stack {grown.count:2}  ", f"  {gain:24} {grown.commit[:10]}"
        title = Text(one_line(grown.title))
        title.truncate(max(width - len(start) - len(end), 1), overflow="ellipsis", pad=True)
        return Text.assemble(start, title, (end, "green"))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.update(self.picture(), refresh=True)
        self._live.stop()
        for line in self._ending:
            self._console.print(Text(line), soft_wrap=True)  # a path that is broken in two cannot be copied
