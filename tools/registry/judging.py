"""Tools that ask the referee, before anything is submitted, and tools that show what is known.

Their answers are hints: what is submitted is judged from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from tools.judging.accept import SpeedupInterval
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.profiler import text as profile_text
from tools.profiler.result import Profile
from tools.registry import Request, Tool, cut, paged

_ROWS = 40


@dataclass(frozen=True)
class Tried:
    """An attempt of this run."""

    step: str
    title: str
    verdict: str
    reason: str
    speedup: SpeedupInterval | None = None

    def __str__(self) -> str:
        gain = f", {self.speedup}" if self.speedup else ""
        return f"- {self.step}: {self.title}: {self.verdict}{gain}. {self.reason}"


class Judging(Protocol):
    """What these tools need of a session. All of it may raise ToolFault, where nothing has been changed yet, say."""

    @property
    def noise_floor(self) -> float: ...

    def verify(self) -> Finding: ...

    def measure(self) -> Comparison: ...

    def profile(self, which: Literal["original", "stack", "candidate"]) -> Profile: ...

    def attempts(self) -> Sequence[Tried]: ...

    def skill(self, name: str) -> str:
        """A list for an empty name."""
        ...


class Verify(Request):
    """Check whether your candidate computes what the original computes: with other inputs, weights and shapes, called
    again, copied, with poisoned memory. What is submitted must pass the same check once more.
    """


def verify(session: Judging, request: Verify) -> str:
    found = session.verify()
    if found.verdict is not None:
        return f"{found.verdict}: {found.reason}\nNothing like it will be kept; mend it, or change something else."
    checked = ", ".join(map(str, found.evidence.get("checked") or []))
    return f"right: it passes the whole check ({checked}), by whichever of its paths it took"


class Measure(Request):
    """Time your candidate beside the top of the stack in three fresh pairs of processes. A hint for you, not a verdict:
    what is submitted is measured afresh, in more restarts.
    """


def measure(session: Judging, request: Measure) -> str:
    found = session.measure()
    if found.failed:
        return f"it cannot be timed: {found.failed}"
    cases = "; ".join(
        f"case {number}: {before:.1f} us, with your candidate {after:.1f} us"
        for number, (before, after) in enumerate(
            zip(found.median_us("incumbent"), found.median_us("candidate"), strict=True), 1
        )
    )
    speedup = found.interval(session.noise_floor)
    return f"{speedup} over the top of the stack ({cases}); below {speedup.noise_floor:.1%} a gain cannot be shown"


class ShowProfile(Request):
    """Show where the time of a call goes: categories, kernels, modules with their lines, and what bounds them."""

    which: Literal["original", "stack", "candidate"] = "stack"
    """Of the unmodified repository, of the top of the stack, or of your candidate."""
    kernels: int = Field(default=15, ge=1, le=60)
    """How many kernels."""
    first_line: int = Field(default=1, ge=1)
    """The first line to show, from 1."""


def show_profile(session: Judging, request: ShowProfile) -> str:
    lines = profile_text.render(session.profile(request.which), most_kernels=request.kernels).splitlines()
    return paged(lines, request.first_line, None, what="It", tool="show_profile")


class ShowLedger(Request):
    """Show what was tried in this run, what came of it and why."""

    step: str = ""
    """Of one step; empty for all."""


def show_ledger(session: Judging, request: ShowLedger) -> str:
    found = [str(each) for each in session.attempts() if request.step in ("", each.step)]
    more = [f"[… {len(found) - _ROWS} before these; name a step …]"] if len(found) > _ROWS else []
    return cut("\n".join([*more, *found[-_ROWS:]])) or "nothing was tried yet"


class Skill(Request):
    """Read a file of a skill pack: instructions and references on AMD GPUs, Triton, profiling and measuring, and code
    that works there.
    """

    name: str = ""
    """`pack` for its main file, or `pack/references/file.md`; empty for a list of all."""
    first_line: int = Field(default=1, ge=1)
    """The first line to read, from 1."""


def skill(session: Judging, request: Skill) -> str:
    lines = session.skill(request.name).splitlines()
    return paged(lines, request.first_line, None, what="It", tool="skill")


TOOLS = [
    Tool("verify", Verify, verify, looks_only=True),
    Tool("measure", Measure, measure, looks_only=True),
    Tool("show_profile", ShowProfile, show_profile, looks_only=True),
    Tool("show_ledger", ShowLedger, show_ledger, looks_only=True),
    Tool("skill", Skill, skill, looks_only=True),
]
