"""What the referee says of a candidate: one of seven verdicts, always with its evidence."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tools.judging.accept import SpeedupInterval

VerdictName = Literal["kept", "neutral", "slower", "wrong", "broken", "refused", "inconclusive"]


class Verdict(BaseModel):
    """`kept` is the only one that changes the stack.

    neutral: no gain could be shown. slower: a loss was shown. wrong: it computes something else. broken: it does
    not build or run. refused: it touched what it may not, or a tripwire fired. inconclusive: this machine is too
    noisy to say.
    """

    model_config = ConfigDict(frozen=True)

    name: VerdictName
    reason: str
    """One line for a person."""
    speedup: SpeedupInterval | None = None
    evidence: dict[str, Any] = Field(default_factory=dict)
