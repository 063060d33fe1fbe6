"""Progress of a run as typed events, each with its wording. `open_progress.py` chooses how they are shown.

No renderer has a thread: on a machine of two cores a display that redraws by itself would be measured along with the
candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from agent.reporting import wording
from agent.step_names import StepStatus
from tools.judging.accept import SpeedupInterval
from tools.plain_text import one_line


@dataclass(frozen=True)
class Event:
    """`words` are lines for a person, with whatever text the target or a model put into the fields."""

    def words(self) -> list[str]:
        raise NotImplementedError

    def lines(self) -> list[str]:
        """The words without control characters, one entry a line."""
        return [one_line(line) for line in self.words()]


def _measured(speedup: SpeedupInterval | None) -> str:
    return "" if speedup is None else f", {wording.speedup(speedup)}"


@dataclass(frozen=True)
class RunStarted(Event):
    run_id: str
    target: str
    entry: str
    device: str
    run_dir: str
    steps: tuple[str, ...]
    sandbox: str
    contained: bool
    resumed: bool = False

    def words(self) -> list[str]:
        verb = "resuming" if self.resumed else "run"
        held = "contained" if self.contained else "uncontained, the target's code can do what you can do"
        return [
            f"{verb} {self.run_id}: {self.target}, entry {self.entry}, on {self.device}",
            f"files of this run: {self.run_dir}",
            f"sandbox {self.sandbox}: {held}",
        ]


@dataclass(frozen=True)
class StepStarted(Event):
    step: str

    def words(self) -> list[str]:
        return [f"step {self.step}"]


@dataclass(frozen=True)
class StepEnded(Event):
    step: str
    status: StepStatus
    reason: str = ""
    kept: int = 0

    def words(self) -> list[str]:
        kept = f", {wording.count(self.kept, 'change')} kept" if self.kept else ""
        return [f"step {self.step}: {self.status}{kept}{': ' + self.reason if self.reason else ''}"]


@dataclass(frozen=True)
class CandidateProposed(Event):
    attempt: str
    step: str
    title: str
    predicted_gain: float | None = None  # as a speedup; None without a prediction

    def words(self) -> list[str]:
        predicted = "" if self.predicted_gain is None else f" (predicted {self.predicted_gain:.2f}×)"
        return [f"candidate {self.attempt}: {self.title}{predicted}"]


@dataclass(frozen=True)
class Judging(Event):
    """`what` is being judged ("candidate 7", "A/A", "torch.compile"), in which phase, how far along."""

    what: str
    phase: str
    done: int = 0
    of: int = 0  # 0 where the end is not known
    unit: str = "restarts"

    def words(self) -> list[str]:
        done = f", {self.done} of {self.of} {self.unit}" if self.of else ""
        return [f"judging {self.what}: {self.phase}{done}"]


@dataclass(frozen=True)
class Answering(Event):
    """`characters` of an answer so far, reasoning included."""

    model: str
    characters: int

    def words(self) -> list[str]:
        return [f"{self.model} is answering, {self.characters:,} characters"]


@dataclass(frozen=True)
class VerdictReached(Event):
    attempt: str
    title: str
    verdict: str
    why: str
    speedup: SpeedupInterval | None = None

    def words(self) -> list[str]:
        return [f"candidate {self.attempt} {self.verdict}{_measured(self.speedup)}: {self.why}"]


@dataclass(frozen=True)
class StackGrew(Event):
    step: str
    title: str
    commit: str
    count: int  # changes on the stack, this one included
    speedup: SpeedupInterval | None = None

    def words(self) -> list[str]:
        return [f"stack: {self.count}. {self.title} [{self.commit[:10]}]{_measured(self.speedup)}"]


@dataclass(frozen=True)
class StackShrank(Event):
    """A change that no longer earns its place in the whole."""

    title: str
    commit: str  # under which it was on the stack
    count: int  # changes left there
    why: str

    def words(self) -> list[str]:
        return [f"stack: {self.title} [{self.commit[:10]}] dropped, {self.count} left: {self.why}"]


@dataclass(frozen=True)
class Note(Event):
    text: str

    def words(self) -> list[str]:
        return [self.text]


@dataclass(frozen=True)
class RunEnded(Event):
    outcome: str  # "3 changes kept", "nothing kept"
    report: str  # path of report.md
    branch: str | None = None  # None when nothing was kept, or when the target is no git repository
    result: str | None = None  # the folder with the result, for a target that is no git repository
    speedup: SpeedupInterval | None = None  # of the whole stack over the unmodified target
    speedup_over_compile: SpeedupInterval | None = None
    gains: Sequence[SpeedupInterval] = ()  # of each change when it was kept, over what lay under it

    def words(self) -> list[str]:
        """The last line names the report and where the result is."""
        gain = ""
        if self.speedup is not None:
            gain = f"{_measured(self.speedup)} over the unmodified target"
        elif self.gains:
            gain = f", {' and '.join(map(wording.speedup, self.gains))} when kept; the whole was not measured"
        if self.speedup_over_compile is not None:
            gain += f"{_measured(self.speedup_over_compile)} over the best plain torch.compile"
        where = f", branch {self.branch}" if self.branch else f", result {self.result}" if self.result else ""
        return [f"{self.outcome}{gain}", f"report {self.report}{where}"]


class Progress:
    """Receives the events of a run; this class drops them. `emit` returns at once and never raises for an event."""

    def emit(self, event: Event) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return


@dataclass
class Display:
    """What is being judged at the moment."""

    progress: Progress
    subject: str = ""

    def say(self, phase: str, done: int = 0, of: int = 0, *, subject: str = "") -> None:
        self.progress.emit(Judging(subject or self.subject, phase, done, of))
