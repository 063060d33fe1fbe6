"""Attempts on disk: one folder each under `attempts/`, so that a killed run knows what it was judging.

Every write is atomic, and writing the same twice changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from agent.records.atomic_file import write_atomically
from tools.candidate import Candidate
from tools.judging.verdict import Verdict


def leave_out_id(member: str) -> str:
    """The id of the attempt that leaves out a change of the stack; `member` is the attempt that brought it."""
    return f"compose_stack-without-{member}"


class Attempt(BaseModel):
    """A candidate on its way through the referee."""

    id: str
    candidate: Candidate
    base: str
    """Commit that it is a diff against: the top of the stack, or what lies on it."""
    below: tuple[str, ...] = ()
    """Attempts that lie between the stack and it, and are kept together with it: enablers, or what waited for it."""


@dataclass(frozen=True)
class Attempts:
    """The attempts of one run."""

    folder: Path

    def save(self, attempt: Attempt) -> None:
        """Results of another attempt with this id that never reached the ledger are removed."""
        try:
            other = self.has(attempt.id) and self.load(attempt.id) != attempt
        except ValidationError:
            other = True
        if other:
            for name in ("verdict.json", "check.json"):
                (self.folder / attempt.id / name).unlink(missing_ok=True)
        self._write(attempt.id, "attempt.json", attempt.model_dump_json(indent=1))
        self._write(attempt.id, "change.patch", attempt.candidate.diff)

    def load(self, attempt_id: str) -> Attempt:
        return Attempt.model_validate_json((self.folder / attempt_id / "attempt.json").read_bytes())

    def save_verdict(self, attempt_id: str, verdict: Verdict) -> None:
        self._write(attempt_id, "verdict.json", verdict.model_dump_json(indent=1))

    def verdict(self, attempt_id: str) -> Verdict | None:
        path = self.folder / attempt_id / "verdict.json"
        return Verdict.model_validate_json(path.read_bytes()) if path.exists() else None

    def has(self, attempt_id: str) -> bool:
        """False for a draft that is only checked and measured by a tool."""
        return (self.folder / attempt_id / "attempt.json").exists()

    def save_check(self, attempt_id: str, evidence: Mapping[str, Any]) -> None:
        """Keep the evidence of a passed check: with the kept compile cache, a resumed run need not repeat it."""
        self._write(attempt_id, "check.json", json.dumps(evidence, indent=1))

    def check(self, attempt_id: str) -> dict[str, Any] | None:
        path = self.folder / attempt_id / "check.json"
        return dict(json.loads(path.read_bytes())) if path.exists() else None

    def _write(self, attempt_id: str, name: str, text: str) -> None:
        (self.folder / attempt_id).mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / attempt_id / name, text)
