"""The report of a run as data: what `report.json` holds, checked when it is made and when it is read.

Does not compute a result: every number in it was decided by the referee. How it reads is in `report_text.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PositiveFloat, computed_field, model_validator

from agent import __version__
from agent.environment import Environment
from agent.reporting import wording
from agent.step_names import STEPS, StepStatus
from tools.candidate import Key, Role
from tools.judging.accept import SpeedupInterval
from tools.judging.verdict import VerdictName


class _Part(BaseModel):
    # JSON has no NaN, and a report has no use for one: a number that is none is a fault, not a value.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Latency(_Part):
    """Time of one call, or why there is none."""

    latency_us: PositiveFloat | None = None
    """Median over restarts of the median call, in microseconds."""
    latency_us_low: PositiveFloat | None = None
    latency_us_high: PositiveFloat | None = None
    tokens_per_s: PositiveFloat | None = None
    """Only when the workload says by `work()` how many tokens a call is."""
    eager_us: PositiveFloat | None = None
    """Median of the unmodified target in the same restarts: machines change their pace, so times compare in pairs."""
    speedup: SpeedupInterval | None = None
    """Over eager, measured in pairs; None for eager itself."""
    about: PositiveFloat | None = None
    """Over eager, of a baseline that a screen showed not to be the best: too few restarts for an interval."""
    failed: str = ""
    """Why this baseline could not be measured."""


class Baselines(_Part):
    """What a user has today, and what one line would give: both measured in the run's own session."""

    eager: Latency
    compile: dict[str, Latency] = Field(default_factory=dict)
    """By mode of plain `torch.compile`."""
    best: str = ""
    """The mode with the largest speedup, which the stack is compared with; empty when none was measured."""


class Step(_Part):
    name: str
    status: StepStatus
    reason: str = ""
    kept: int = Field(default=0, ge=0)
    attempts: int = Field(default=0, ge=0)
    at_most: PositiveFloat | None = None
    """The speedup that it could reach at most on the stack it began with, by the profile of the original."""

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if self.status != "done" and not self.reason:
            raise ValueError(f"step {self.name} is {self.status} and does not say why")
        return self


class Cost(_Part):
    wall_s: float = Field(default=0.0, ge=0)
    restarts: int = Field(default=0, ge=0)
    tokens: int = Field(default=0, ge=0)
    """Of a model, to come to the candidate."""
    dollars: float | None = None
    """What these cost; None where that is not known."""


class Attempt(_Part):
    """One candidate and what became of it, kept or not."""

    id: str
    step: str
    key: Key | None = None
    """What the candidate is known by, in any run; None in reports of version 0.1."""
    role: Role = "first"
    title: str
    verdict: VerdictName
    why: str
    """The evidence in one line."""
    evidence: dict[str, Any] = Field(default_factory=dict)
    """Everything the referee measured or caught; small JSON."""
    cost: Cost = Cost()
    predicted_gain: PositiveFloat | None = None
    """As a speedup, said before judging."""
    speedup: SpeedupInterval | None = None
    leaves_out: str = ""
    """The attempt whose change is left out of the stack, where it is asked whether that still earns its place."""


class Kept(_Part):
    """A change on the final stack."""

    attempt: str
    step: str
    key: Key | None = None
    title: str
    commit: str
    speedup: SpeedupInterval | None = None
    """Over the stack below it, and below what was timed together with it; None where it was not timed by itself."""
    together_with: list[str] = Field(default_factory=list)
    """The attempts on the stack whose gain is part of its own."""


class ModelUse(_Part):
    """What was spent on models."""

    name: str
    replayed: bool = False
    """Answered from a recording: what is said here was spent when that was made."""
    requests: int = Field(ge=0)
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    untold: int = Field(default=0, ge=0)
    """Requests whose tokens the endpoint did not report."""
    guessed_tokens: int = Field(default=0, ge=0)
    """Of those, by their length, beside the tokens that were told."""
    dollars: float | None = Field(default=None, ge=0)
    """By the prices that are known; None where they are not."""
    tokens_by_step: dict[str, int] = Field(default_factory=dict)
    """Guesses included."""
    dollars_by_step: dict[str, float | None] = Field(default_factory=dict)


class Afresh(_Part):
    """A change that an earlier run kept, judged afresh by this one."""

    step: str
    title: str
    then: SpeedupInterval | None = None
    """Over what lay below it in that run; None for an enabler."""
    now: SpeedupInterval | None = None
    outcome: str
    """`kept`, `dropped` (kept at first, and not worth its place in the whole), another verdict, or `not judged`."""
    why: str = ""


class Workload(_Part):
    """One shape or phase of the workload, judged apart."""

    name: str
    before: Latency
    after: Latency
    speedup: SpeedupInterval | None = None


class TimeShare(_Part):
    """Where the time of a call goes: one category of kernels, or on a CPU of operations; microseconds per call."""

    category: str
    before_us: float = Field(ge=0)
    after_us: float | None = Field(default=None, ge=0)
    """Of the whole stack; None when nothing was kept."""


class Sandbox(_Part):
    provider: str
    contained: bool
    promises: dict[str, bool] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def containment(self) -> str:
        return "contained" if self.contained else "uncontained"


class Report(_Part):
    """One run."""

    format: Literal[1] = 1
    version: str = __version__
    run_id: str
    date: AwareDatetime
    command: list[str]
    target: str
    entry: str
    wall_s: float = Field(ge=0)
    speedup: SpeedupInterval | None
    """Of the whole stack over the unmodified target, measured afresh at the end; None when nothing was kept."""
    speedup_over_compile: SpeedupInterval | None = None
    """Of the whole stack over the best plain `torch.compile` mode."""
    speedup_default_malloc: SpeedupInterval | None = None
    """The same as `speedup` without the fixed malloc settings that make CPU timings comparable."""
    baselines: Baselines
    final: Latency | None = None
    workloads: list[Workload] = Field(default_factory=list)
    time: list[TimeShare] = Field(default_factory=list)
    """By profiles of the original and of the whole stack, what takes most of the original first."""
    steps: list[Step]
    kept: list[Kept]
    attempts: list[Attempt]
    afresh: list[Afresh] = Field(default_factory=list)
    """What became of the changes of the run that this one judges afresh."""
    model: ModelUse | None = None
    """None when no model was asked."""
    advice: list[str] = Field(default_factory=list)
    """What only the user can do: a flag, a call in the entry."""
    notes: list[str] = Field(default_factory=list)
    """What a reader must know: uncommitted changes included, the time budget used up."""
    environment: Environment
    sandbox: Sandbox
    branch: str | None = None
    result: str | None = None
    """The folder and patch with the result, for a target that is no git repository."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> str:
        return f"{wording.count(len(self.kept), 'change')} kept" if self.kept else "nothing kept"

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        names = tuple(step.name for step in self.steps)
        if names != STEPS:
            raise ValueError(f"the steps are not the ten in order: {', '.join(names)}")
        ids = [attempt.id for attempt in self.attempts]
        if len(set(ids)) != len(ids):
            raise ValueError("two attempts have the same id")
        unknown = [kept.attempt for kept in self.kept if kept.attempt not in ids]
        if unknown:
            raise ValueError(f"kept, but never attempted: {', '.join(unknown)}")
        if self.speedup is not None and not self.kept:
            raise ValueError("nothing was kept, so there is no speedup to report")
        return self


def read(folder: Path) -> Report:
    """The report of a finished run of any version; derived fields are derived again, not believed.

    Raises: OSError, pydantic.ValidationError.
    """
    return Report.model_validate_json((folder / "report.json").read_bytes(), extra="ignore")
