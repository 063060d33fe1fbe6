"""The stack follows the ledger, whenever the process between them is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.records.acceptance import follow
from agent.records.ledger import Ledger, NewRow
from agent.repository.stack import Change, Stack, StackError
from agent.repository.target import import_target
from tools.candidate import Key
from tools.diff.patch import make_diff

TIME = 1_700_000_000
CHANGES = 8
LINES = 40

pytestmark = pytest.mark.usefixtures("home")


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
def run(tmp_path: Path, repository: Callable[..., Path]) -> Path:
    target = repository({"a.py": "".join(f"line {n}\n" for n in range(LINES))})
    (tmp_path / "run").mkdir()
    make_stack(target, tmp_path / "run")
    return tmp_path / "run"


def make_stack(target: Path, run: Path) -> None:
    Stack.create(run / "stack", import_target(target, run / "pristine"), time_unix=TIME)


def attempts(stack: Stack) -> list[str]:
    return [commit.attempt_id for commit in stack.commits()]


def test_the_last_row_that_names_a_stack_is_the_one_that_holds(run: Path) -> None:
    stack, ledger = Stack.open(run / "stack"), Ledger.open(run / "ledger.jsonl")
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


def test_a_stack_that_knows_more_than_the_ledger_is_not_touched(run: Path) -> None:
    stack, ledger = Stack.open(run / "stack"), Ledger.open(run / "ledger.jsonl")
    stack.accept(changes_of(stack)("change-0"))
    top = stack.top
    with pytest.raises(StackError, match="the ledger knows nothing"):
        follow(ledger, stack, changes_of(stack))
    assert stack.top == top


def test_a_lock_that_a_killed_git_left_stops_nobody(run: Path) -> None:
    for lock in ("refs/heads/stack.lock", "HEAD.lock", "tree-index.lock", "packed-refs.lock"):
        (run / "stack" / "repository.git" / lock).write_text("")
    stack, ledger = Stack.open(run / "stack"), Ledger.open(run / "ledger.jsonl")
    kept(ledger, "change-0", ["change-0"])
    assert follow(ledger, stack, changes_of(stack)) == ["change-0"]


def work(run: Path) -> None:
    """What a run does, over and over: a row, then its commit. Started as a process, to be killed."""
    stack, ledger = Stack.open(run / "stack"), Ledger.open(run / "ledger.jsonl")
    follow(ledger, stack, changes_of(stack))
    for number in range(CHANGES):
        attempt = f"change-{number}"
        if ledger.find(attempt) is None:
            kept(ledger, attempt, [*ledger.stacked(), attempt])
            print(attempt, flush=True)
            follow(ledger, stack, changes_of(stack))


def started(run: Path) -> subprocess.Popen[str]:
    script = f"import runpy; runpy.run_path({__file__!r})['work'](__import__('pathlib').Path({str(run)!r}))"
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def test_a_run_killed_at_any_moment_ends_with_the_same_stack(run: Path, tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    make_stack(tmp_path / "target", undisturbed)
    work(undisturbed)
    draw = random.Random(3)
    acknowledged: list[str] = []
    kills = 0
    while len(acknowledged) < CHANGES:
        with started(run) as process:
            assert process.stdout is not None
            for _ in range(draw.randrange(1, 3)):
                acknowledged += process.stdout.readline().split()
            time.sleep(draw.uniform(0, 0.15))
            os.killpg(process.pid, signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
            acknowledged += process.stdout.read().split()
        rows = [row.attempt_id for row in Ledger.read(run / "ledger.jsonl")]
        assert rows[: len(acknowledged)] == acknowledged
        acknowledged = rows
    assert kills >= 3
    stack, ledger = Stack.open(run / "stack"), Ledger.open(run / "ledger.jsonl")
    follow(ledger, stack, changes_of(stack))
    assert attempts(stack) == [f"change-{number}" for number in range(CHANGES)]
    assert stack.top == Stack.open(undisturbed / "stack").top
    stack.git.run("fsck", "--strict")
