"""What an earlier run kept, read off its folder, for another run that judges it afresh.

Never writes to that folder. It refuses a run that another process works on, and one that kept nothing.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from agent.errors import AgentError, RunDamaged
from agent.proposers.replay import Files, PastChange
from agent.records import acceptance
from agent.records.attempts import Attempts
from agent.records.ledger import Ledger
from agent.records.run_folder import RunFolder
from agent.repository.private_git import GitError
from agent.repository.stack import Stack, StackError


class NothingWasKept(AgentError):
    """The run kept nothing, so there is nothing to judge afresh."""

    exit_status = 57


def changes(run_dir: Path) -> list[PastChange]:
    """The changes on its final stack, in order.

    Where its stack cannot be read, as in a folder that was copied from another machine without the target, a change is
    known by its diff alone, and fits only where the lines around it are the same.

    Raises: RunInUse, RunDamaged, NothingWasKept.
    """
    folder = RunFolder(run_dir)
    with folder.locked():
        folder.read()
        try:
            rows, attempts = Ledger.read(run_dir / "ledger.jsonl"), Attempts(run_dir / "attempts")
            ledger = Ledger(run_dir / "ledger.jsonl", list(rows))
            found = {name: attempts.load(name).candidate for name in acceptance.wanted_stack(ledger)}
        except (OSError, ValidationError) as error:
            raise RunDamaged(f"{run_dir} cannot be read: {str(error).splitlines()[0]}",
                             hint="Its ledger.jsonl and attempts/ are needed.") from error  # fmt: skip
        if not found:
            raise NothingWasKept(f"Run {folder.run_id} kept nothing, so there is nothing to judge afresh.",
                                 hint="`agent run` looks for changes; `agent runs` lists what runs kept.")  # fmt: skip
        files = _files(run_dir / "stack")
    past = []
    for name, candidate in found.items():
        changed, diff = files.get(name, ({}, candidate.diff))
        row = ledger.find(name)
        past.append(PastChange(candidate.model_copy(update={"diff": diff}), changed, row.speedup if row else None))
    return past


def _files(folder: Path) -> dict[str, tuple[Files, str]]:
    """By attempt, what its commit changed, and as a diff; nothing where the stack cannot be read here."""
    try:
        stack = Stack.open(folder)
        found: dict[str, tuple[Files, str]] = {}
        if not Path(stack.facts.pristine).is_dir():
            return {}
        below = stack.base
        for commit in stack.commits():
            found[commit.attempt_id] = stack.trees.changed(below, commit.commit), stack.diff(commit.commit)
            below = commit.commit
        return found
    except (GitError, StackError, OSError):
        return {}
