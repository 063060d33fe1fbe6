"""Tools that ask the referee, before anything is submitted, and tools that show what is known.

What they answer is for the one who asks: a verdict is made afresh from what is submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import Field

from tools.judging.accept import SpeedupInterval
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.profiler import text as profile_text
from tools.profiler.result import Profile
from tools.registry import Request, Result, Tool, cut, paged
from tools.registry.files import Text

_ROWS = 40


class Tried(Result):
    """An attempt of this run."""

    step: str
    title: str
    verdict: str
    reason: str
    speedup: SpeedupInterval | None = None

    def text(self) -> str:
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


class Verify(Request):
    """Check whether your candidate computes what the original computes: with other inputs, weights and shapes, called
    again, copied, with poisoned memory. What is submitted must pass the same check once more.
    """


class Verified(Result):
    right: bool
    verdict: str = ""
    """Where it is not right: `wrong`, `broken` or `refused`."""
    reason: str = ""
    checked: list[str] = Field(default_factory=list)
    """What was asked."""

    def text(self) -> str:
        if self.right:
            return f"right: it passes the whole check ({', '.join(self.checked)}), by whichever of its paths it took"
        return f"{self.verdict}: {self.reason}\nNothing like it will be kept; mend it, or change something else."


def verify(session: Judging, request: Verify) -> Result:
    found = session.verify()
    checked = [str(each) for each in found.evidence.get("checked") or []]
    return Verified(right=found.verdict is None, verdict=found.verdict or "", reason=found.reason, checked=checked)


class Measure(Request):
    """Time your candidate beside the top of the stack in three fresh pairs of processes. A hint for you, not a verdict:
    what is submitted is measured afresh, in more restarts.
    """


class Measured(Result):
    speedup: SpeedupInterval | None = None
    """Over the top of the stack; None when it failed."""
    failed: str = ""
    stack_us: list[float] = Field(default_factory=list)
    """A call of the top of the stack, by case, in microseconds."""
    candidate_us: list[float] = Field(default_factory=list)

    def text(self) -> str:
        if self.speedup is None:
            return f"it cannot be timed: {self.failed}"
        cases = "; ".join(
            f"case {number}: {before:.1f} us, with your candidate {after:.1f} us"
            for number, (before, after) in enumerate(zip(self.stack_us, self.candidate_us, strict=True), 1)
        )
        delta = self.speedup.noise_floor
        return f"{self.speedup} over the top of the stack ({cases}); below {delta:.1%} a gain cannot be shown"


def measure(session: Judging, request: Measure) -> Result:
    found = session.measure()
    if found.failed:
        return Measured(failed=found.failed)
    return Measured(
        speedup=found.interval(session.noise_floor),
        stack_us=found.median_us("incumbent"),
        candidate_us=found.median_us("candidate"),
    )


class ShowProfile(Request):
    """Show where the time of a call goes: categories, kernels, modules with their lines, and what bounds them."""

    which: Literal["original", "stack", "candidate"] = "stack"
    """Of the unmodified repository, of the top of the stack, or of your candidate."""
    kernels: int = Field(default=15, ge=1, le=60)
    """How many kernels."""
    first_line: int = Field(default=1, ge=1)
    """The first line to show, from 1."""


def show_profile(session: Judging, request: ShowProfile) -> Result:
    lines = profile_text.render(session.profile(request.which), most_kernels=request.kernels).splitlines()
    return Text(said=paged(lines, request.first_line, None, what="It", tool="show_profile"))


class ShowLedger(Request):
    """Show what was tried in this run, what came of it and why."""

    step: str = ""
    """Of one step; empty for all."""


def show_ledger(session: Judging, request: ShowLedger) -> Result:
    found = [each.text() for each in session.attempts() if request.step in ("", each.step)]
    more = [f"[… {len(found) - _ROWS} before these; name a step …]"] if len(found) > _ROWS else []
    return Text(said=cut("\n".join([*more, *found[-_ROWS:]])) or "nothing was tried yet")


TOOLS = [
    Tool("verify", Verify, verify, looks_only=True),
    Tool("measure", Measure, measure, looks_only=True),
    Tool("show_profile", ShowProfile, show_profile, looks_only=True),
    Tool("show_ledger", ShowLedger, show_ledger, looks_only=True),
]
