"""Make the stack what the ledger says it is.

A change becomes permanent in one order: its attempt on the disk, then its row in the ledger, then, here, its commit.
So a run that was killed at any moment goes on with every change that a row calls kept, and with none that no row
speaks of. Does not judge, or write attempts or rows.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.records.ledger import Ledger
from agent.repository.stack import Change, Conflict, Stack, StackError

ChangeOf = Callable[[str], Change]


def follow(ledger: Ledger, stack: Stack, change_of: ChangeOf) -> list[str]:
    """Make the stack what the ledger says, and return the attempts whose commits were made for it.

    To be called after each row that names a stack, and at the start of every resumed run. `change_of` gives the change
    of an attempt. Raises: StackError when the stack holds what the ledger does not know, or a change does not fit;
    GitError, DiskFull.
    """
    wanted = ledger.stacked()
    present = [commit.attempt_id for commit in stack.commits()]
    if present == wanted:
        return []
    if unknown := [attempt for attempt in present if ledger.find(attempt) is None]:
        raise StackError(
            f"The stack holds {unknown[0]}, of which the ledger knows nothing.",
            hint="ledger.jsonl is not the one of this stack, or its end is missing; restore it.",
        )
    same = 0
    while same < min(len(present), len(wanted)) and present[same] == wanted[same]:
        same += 1
    below = stack.commits()[same - 1].commit if same else stack.base
    built = stack.build([change_of(attempt) for attempt in wanted[same:]], on=below)
    if isinstance(built, Conflict):
        raise StackError(f"The kept change {built.attempt_id} does not fit on the stack: {built.reason}")
    stack.adopt(built)
    return wanted[same:]
