"""Replay: the changes that an earlier run kept, proposed once more to be judged afresh, on this machine as it is now.

Each is carried over to the stack as it is by a three-way merge; what was measured before counts for nothing. It refuses
to look for anything new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.playbook.composing import RETRIED, STEP, again
from agent.proposers import ProposalRequest, Proposer
from tools.candidate import Candidate
from tools.diff.patch import FileState, OutOfReach, make_diff, tree_reader
from tools.judging.accept import SpeedupInterval
from tools.rewrite.runtime_files import needed

Files = Mapping[str, tuple[FileState | None, FileState | None]]  # by path
Merge = Callable[[bytes, bytes, bytes], bytes | None]  # (here, before, after) of a file; None for a conflict


@dataclass(frozen=True)
class PastChange:
    """A change on the final stack of an earlier run."""

    candidate: Candidate
    files: Files  # before and after it; empty where that is not known
    speedup: SpeedupInterval | None  # over what lay below it then; None for an enabler
    runtime: Mapping[str, bytes] = field(default_factory=dict)  # our files that its stack had, by path


class Replay(Proposer):
    """A `Proposer`. `changes` in the order in which they lay on the stack."""

    name = "replay"

    def __init__(self, changes: Sequence[PastChange], merge: Merge) -> None:
        self.changes, self._merge = changes, merge

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        found, reasons = list[Candidate](), list[str]()
        for candidate, change in self._due(request):
            diff = self._carried_over(change, request.base)
            if diff == "":
                reasons.append(f"{candidate.title}: the target has it already")
            else:  # what cannot be merged is proposed as it was, so that the ledger says what it meets
                diff = candidate.diff if diff is None else diff
                found.append(candidate.model_copy(update={"diff": diff, "origin": "replay"}))
        return found, "" if found else "; ".join(reasons) or "the earlier run kept nothing in this step"

    def expects(self, request: ProposalRequest) -> float:
        return float(bool(self._due(request)))

    def _due(self, request: ProposalRequest) -> list[tuple[Candidate, PastChange]]:
        """What this step has not tried yet; the last one tries again what did nothing where it came first."""
        tried = {(past.key, past.role) for past in request.attempts if past.step == request.step}
        due = [(c.candidate, c) for c in self.changes if c.candidate.step == request.step]
        if request.step == STEP:
            verdicts = {past.key: past.verdict for past in request.attempts if past.role != "leave_one_out"}
            due += [
                (again(c.candidate), c)
                for c in self.changes
                if verdicts.get(c.candidate.key) in RETRIED and c.candidate.step != STEP
            ]
        return [(candidate, change) for candidate, change in due if (candidate.key, candidate.role) not in tried]

    def _carried_over(self, change: PastChange, base: Path) -> str | None:
        """The change as a diff against `base`: empty where nothing of it is left to do, None for a conflict."""
        if not change.files:
            return None
        read, contents = tree_reader(base), dict[str, bytes | None]()
        for path, (before, after) in change.files.items():
            try:
                here = read(path)
            except OutOfReach:
                return None
            if here == after:
                continue
            if here == before:
                contents[path] = None if after is None else after.data
            elif here is None or before is None or after is None:
                return None
            else:
                contents[path] = self._merge(here.data, before.data, after.data)
                if contents[path] is None:
                    return None
        is_there = lambda path: read(path) is not None  # noqa: E731
        return make_diff(base, {**contents, **needed(contents, change.runtime, is_there)})
