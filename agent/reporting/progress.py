"""What a run tells while it goes on, as typed events. `open_progress.py` chooses how they are shown.

No renderer has a thread: on a machine of two cores a display that redraws by itself would be measured along with the
candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agent.step_names import StepStatus
from tools.judging.accept import SpeedupInterval


@dataclass(frozen=True)
class RunStarted:
    run_id: str
    target: str
    entry: str
    device: str
    run_dir: str
    steps: tuple[str, ...]
    sandbox: str
    contained: bool
    resumed: bool = False


@dataclass(frozen=True)
class StepStarted:
    step: str


@dataclass(frozen=True)
class StepEnded:
    step: str
    status: StepStatus
    reason: str = ""
    kept: int = 0


@dataclass(frozen=True)
class CandidateProposed:
    attempt: str
    step: str
    title: str
    predicted_gain: float | None = None  # a speedup; None when nobody dared


@dataclass(frozen=True)
class Judging:
    """`what` is being judged ("candidate 7", "A/A", "torch.compile"), in which phase, how far along."""

    what: str
    phase: str
    done: int = 0
    of: int = 0  # 0 when nobody knows
    unit: str = "restarts"


@dataclass(frozen=True)
class Answering:
    """A model is answering, and has said so much until now, its thoughts included."""

    model: str
    characters: int


@dataclass(frozen=True)
class VerdictReached:
    attempt: str
    title: str
    verdict: str
    why: str
    speedup: SpeedupInterval | None = None


@dataclass(frozen=True)
class StackGrew:
    step: str
    title: str
    commit: str
    count: int  # changes on the stack, this one included
    speedup: SpeedupInterval | None = None


@dataclass(frozen=True)
class StackShrank:
    """A change that no longer earns its place in the whole."""

    title: str
    commit: str  # under which it was on the stack
    count: int  # changes left there
    why: str


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class RunEnded:
    outcome: str  # "3 changes kept", "nothing kept"
    report: str  # path of report.md
    branch: str | None = None  # None when nothing was kept, or when the target is no git repository
    result: str | None = None  # the folder with the result, for a target that is no git repository
    speedup: SpeedupInterval | None = None  # of the whole stack over the unmodified target
    speedup_over_compile: SpeedupInterval | None = None


Event = (
    RunStarted
    | StepStarted
    | StepEnded
    | CandidateProposed
    | Judging
    | Answering
    | VerdictReached
    | StackGrew
    | StackShrank
    | Note
    | RunEnded
)


class Progress:
    """Where a run reports what it does; this base shows nothing. `emit` returns at once and raises for no event."""

    def emit(self, event: Event) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


@dataclass
class Display:
    """What is being judged at the moment, for whoever watches the run."""

    progress: Progress
    subject: str = ""

    def say(self, phase: str, done: int = 0, of: int = 0) -> None:
        self.progress.emit(Judging(self.subject, phase, done, of))
