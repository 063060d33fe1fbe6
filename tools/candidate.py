"""What is looked at and what is proposed: `Site`, `Candidate` and the key by which a candidate is known."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

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


class Key(NamedTuple):
    """What a candidate changes. Two candidates with the same key are the same idea at the same place."""

    rewriter: str
    """What made the change: a rewriter of `tools/rewrite`, or "model"."""
    place: str
    """File and qualified name, without line numbers: they change with every line that is added above."""
    variant: str = ""
    """Which of several changes the rewriter can make at that place."""

    def __str__(self) -> str:
        return " ".join(filter(None, self))


Role = Literal["first", "beside", "on_enablers", "again", "leave_one_out", "whole"]
_SHOWN: dict[Role, str] = {
    "first": "%s",
    "beside": "%s, with the baseline",
    "on_enablers": "%s, on the enablers before it",
    "again": "%s, on the whole stack",
    "leave_one_out": "Leave out: %s",
    "whole": "%s",
}


def key_of_diff(diff: str) -> Key:
    """The key of a change that no rewriter made: by the files it edits and the digest of its diff."""
    files = sorted(set(_EDITED.findall(diff)))
    place = ", ".join(files[:_MOST_FILES]) + (" and others" if len(files) > _MOST_FILES else "")
    return Key("model", place.encode("utf-8", "replace").decode(), diff_digest(diff)[:16])


_EDITED = re.compile(r"^(?:--- a|\+\+\+ b)/(.+)$", re.MULTILINE)
_MOST_FILES = 3


class Candidate(BaseModel):
    """A proposed change: a diff against the top of the stack, and what its author says of it."""

    model_config = ConfigDict(frozen=True)

    step: str
    title: str
    """For people: nothing compares, parses or orders by it."""
    rationale: str
    diff: str
    key: Key = Field(default_factory=lambda known: key_of_diff(known["diff"]))
    """What it is known by. Without one of a rewriter: the files it edits and the digest of its diff."""
    role: Role = "first"
    """Why it is tried: the first time, or once more on something else."""
    predicted_gain: float | None = None
    """Expected speedup of a whole call, such as 1.08; compared with the measured one, never used to decide."""
    enables: str = ""
    """What a change that gains nothing by itself makes possible; empty when nothing."""
    objection: str = ""
    """Why a reviewer rejected it before it was judged; empty when none did."""
    tokens: int = 0
    """Of a model, spent on it: prompts and answers together."""
    dollars: float | None = None
    """What these cost; None where no model was asked, or its price is not known."""
    origin: Literal["playbook", "llm", "replay"] = "playbook"

    @property
    def shown(self) -> str:
        """Its title and role, for people."""
        return _SHOWN[self.role] % self.title

    @property
    def digest(self) -> str:
        """Names the change: the same for diffs that do the same."""
        return diff_digest(self.diff)
