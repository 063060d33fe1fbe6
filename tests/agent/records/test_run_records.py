"""The stack follows the ledger, from whatever a process that was killed between them left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.records.ledger import Ledger, NewRow
from agent.records.run_records import follow
from agent.repository.stack import Change, Stack, StackError
from tests.agent.lab import TIME, Lab
from tools.candidate import Key
from tools.diff.patch import make_diff

LINES = 40


def diff_of(number: int, stack: Stack) -> str:
    """Change one line of its own; all diffs are made on the base."""
    lines = [f"line {n}\n" for n in range(LINES)]
    lines[number * 5] = f"change {number}\n"
    return make_diff(Path(stack.facts.pristine), {"a.py": "".join(lines), f"new_{number}.py": "x\n"})


def changes_of(stack: Stack) -> Callable[[str], Change]:
    def change_of(attempt_id: str) -> Change:
        number = int(attempt_id.removeprefix("change-"))
        return Change(attempt_id, diff_of(number, stack), f"Change {number}", TIME + number, stack.base)

    return change_of


def kept(ledger: Ledger, attempt_id: str, stack: Sequence[str] | None, verdict: str = "kept") -> None:
    values: dict[str, Any] = {"attempt_id": attempt_id, "verdict": verdict, "stack": stack}
    ledger.append(NewRow(time=datetime.now(UTC), step="s", key=Key("rewriter", "place"), title="t", **values))


@pytest.fixture
def run(lab: Lab) -> Path:
    lab.stack({"a.py": "".join(f"line {n}\n" for n in range(LINES))})
    return lab.run


def opened(run: Path) -> tuple[Stack, Ledger]:
    return Stack.open(run / "stack"), Ledger.open(run / "ledger.jsonl")


def attempts(stack: Stack) -> list[str]:
    return [commit.attempt_id for commit in stack.commits()]


def test_the_last_row_that_names_a_stack_is_the_one_that_holds(run: Path) -> None:
    stack, ledger = opened(run)
    change_of = changes_of(stack)
    assert follow(ledger, stack, change_of) == []
    kept(ledger, "change-0", ["change-0"])
    assert follow(ledger, stack, change_of) == ["change-0"]
    kept(ledger, "change-1", None, "neutral")
    assert follow(ledger, stack, change_of) == []
    kept(ledger, "change-2", ["change-0", "change-1", "change-2"])  # the neutral one enabled it
    assert follow(ledger, stack, change_of) == ["change-1", "change-2"]
    top = stack.top
    kept(ledger, "without-0", ["change-1", "change-2"])
    assert follow(ledger, stack, change_of) == ["change-1", "change-2"]
    assert attempts(stack) == ledger.stacked() == ["change-1", "change-2"]
    assert "change 0" not in stack.git.run("show", f"{stack.top}:a.py").stdout.decode()
    kept(ledger, "back", ["change-0", "change-1", "change-2"])
    follow(ledger, stack, change_of)
    assert stack.top == top
    kept(ledger, "nothing", [])
    follow(ledger, stack, change_of)
    assert stack.top == stack.base


def test_a_stack_that_knows_more_than_the_ledger_is_not_touched(run: Path, lab: Lab) -> None:
    stack, ledger = opened(run)
    top = lab.put(stack, changes_of(stack)("change-0"))
    with pytest.raises(StackError, match="the ledger knows nothing"):
        follow(ledger, stack, changes_of(stack))
    assert stack.top == top


def test_a_lock_that_a_killed_git_left_stops_nobody(run: Path) -> None:
    for lock in ("refs/heads/stack.lock", "HEAD.lock", "tree-index.lock", "packed-refs.lock"):
        (run / "stack" / "repository.git" / lock).write_text("")
    stack, ledger = opened(run)
    kept(ledger, "change-0", ["change-0"])
    assert follow(ledger, stack, changes_of(stack)) == ["change-0"]
