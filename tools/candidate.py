"""What is looked at and what is proposed: `Site` and `Candidate`. Records, without behaviour to speak of."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tools.diff.patch import digest as diff_digest


class Site(BaseModel):
    """A place in the target worth changing."""

    model_config = ConfigDict(frozen=True)

    kind: str
    """One of the kinds a rewrite knows: "rms_norm", "gated_mlp", "attention", "projections", "repeat_kv", …"""
    file: str
    """Relative to the target; absolute for third-party code."""
    line: int
    line_end: int
    module_class: str = ""
    module_paths: tuple[str, ...] = ()
    """Where in the model it occurs, as in `named_modules()`."""
    third_party: bool = False
    share: float | None = None
    """Share of the time of a call spent here, 0 to 1, when the profile could tell."""
    detail: dict[str, Any] = Field(default_factory=dict)
    """What the rewrite of this kind needs; JSON only."""


class Candidate(BaseModel):
    """A proposed change: a diff against the top of the stack, and what its author says of it."""

    model_config = ConfigDict(frozen=True)

    step: str
    title: str
    rationale: str
    diff: str
    predicted_gain: float | None = None
    """Expected speedup of a whole call, such as 1.08; compared with the measured one, never used to decide."""
    enables: str = ""
    """What a change without a gain of its own makes possible; empty when nothing."""
    timed_with: str = ""
    """The step with whose change it is timed, because by itself it would not show what it saves there; else empty."""
    objection: str = ""
    """Why a reviewer rejected it before it was judged; empty when none did."""
    tokens: int = 0
    """Of a model, spent on it: prompts and answers together."""
    dollars: float | None = None
    """What these cost; None where no model was asked, or its price is not known."""
    origin: Literal["playbook", "llm", "replay"] = "playbook"

    @property
    def digest(self) -> str:
        """Names the change: the same for diffs that do the same."""
        return diff_digest(self.diff)
