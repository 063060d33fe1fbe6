"""The state of the graph: small JSON, since every step writes all of it. Large things are in files.

The ledger and the git stack are the truth; losing this cursor loses no change.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from agent.step_names import StepStatus


class StepResult(TypedDict):
    """How a step ended; `reason` says why when it did nothing."""

    status: StepStatus
    reason: str
    kept: int
    attempts: int
    at_most: float | None  # speedup that it could reach at most on the stack it began with, by the profile


def _merge(old: dict[str, StepResult], new: dict[str, StepResult]) -> dict[str, StepResult]:
    return {**old, **new}


class RunState(TypedDict, total=False):
    """What the nodes read and return. LangGraph drops unknown keys silently, so all of them are here."""

    step: str  # the step in progress
    results: Annotated[dict[str, StepResult], _merge]
    climbing: bool  # whether the step just left asks for the climb
    attempt: str  # id of the attempt in progress, "" when there is none
    verdict: str
    shadow: list[str]  # attempts on the shadow stack: correct, no gain by themselves, enabling others
    no_more: str  # why the climb of this step ended
    goto: str  # the step that comes next out of turn, "" otherwise
    returned: bool  # whether it has done so; once is enough


class Update(RunState, total=False):
    """What a node returns: the part of the state it changes."""


def ended(step: str, status: StepStatus, reason: str = "", kept: int = 0, attempts: int = 0) -> Update:
    """A step that is over."""
    result: StepResult = {"status": status, "reason": reason, "kept": kept, "attempts": attempts, "at_most": None}
    return {"step": step, "climbing": False, "goto": "", "results": {step: result}}


def climb(step: str) -> Update:
    """Ask for candidates of this step and judge them."""
    return {"step": step, "climbing": True, "goto": "", "attempt": "", "verdict": "", "no_more": ""}
