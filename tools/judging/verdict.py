"""The referee's verdict on a candidate: one of eight names, with its evidence."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tools.judging.accept import SpeedupInterval
from tools.judging.comparison import Comparison
from tools.plain_text import plain, plain_values

VerdictName = Literal["kept", "right", "neutral", "slower", "wrong", "broken", "refused", "inconclusive"]


class Verdict(BaseModel):
    """`kept` is the only one that changes the stack.

    right: it passes the whole check, and was not timed by itself. neutral: no gain could be shown. slower: a loss was
    shown. wrong: it computes something else. broken: it does not build or run. refused: it touched what it may not, or
    a tripwire fired. inconclusive: the machine was too noisy, or changed its pace, or a tripwire fired of what it was
    compared with. The text may hold names that the candidate chose, so it is made printable.
    """

    model_config = ConfigDict(frozen=True)

    name: VerdictName
    reason: Annotated[str, BeforeValidator(plain)]
    """One line for a person."""
    speedup: SpeedupInterval | None = None
    evidence: Annotated[dict[str, Any], BeforeValidator(plain_values)] = Field(default_factory=dict)


def of_failed(found: Comparison, evidence: dict[str, Any]) -> Verdict | None:
    """The verdict on a candidate whose comparison counts for nothing; None where it counts."""
    names: dict[VerdictName, str] = {"refused": found.refused, "broken": found.broken, "inconclusive": found.unsettled}
    return next((Verdict(name=name, reason=why, evidence=evidence) for name, why in names.items() if why), None)
