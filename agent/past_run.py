"""The kept changes of an earlier run, read once from its folder, for a run that judges them again.

The folder is not changed, except that locks of a killed git are removed.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent.errors import AgentError, RunDamaged
from agent.proposers.replay import Files, PastChange
from agent.records.atomic_file import write_atomically
from agent.records.attempts import Attempts
from agent.records.ledger import Ledger
from agent.records.run_folder import FolderUnusable, RunFolder
from agent.repository.stack import Stack, StackError
from tools.diff.patch import diff_files
from tools.private_git import GitError
from tools.rewrite.runtime_files import PACKAGE

FILE = "past.json"
_CHANGES = TypeAdapter(list[PastChange], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"))


class NothingWasKept(AgentError):
    """The run kept nothing, so there is nothing to judge again."""

    exit_status = 57


def kept_changes(run_dir: Path, past: Path) -> list[PastChange]:
    """The changes of the run in `past`, as they were when the run in `run_dir` first read them.

    Raises: RunInUse, RunDamaged, NothingWasKept.
    """
    file = run_dir / FILE
    if not file.exists():
        write_atomically(file, _CHANGES.dump_json(changes(past), indent=1).decode() + "\n")
    return _CHANGES.validate_json(file.read_bytes())


def changes(run_dir: Path) -> list[PastChange]:
    """The changes on its final stack, in order.

    Without a readable stack, as in a folder copied from another machine without the target, only the diffs are known:
    they apply only where the surrounding lines are unchanged.

    Raises: RunInUse, RunDamaged, NothingWasKept.
    """
    folder = RunFolder(run_dir)
    try:
        with folder.locked():
            folder.read()
            ledger = Ledger(run_dir / "ledger.jsonl", list(Ledger.read(run_dir / "ledger.jsonl")))
            attempts = Attempts(run_dir / "attempts")
            found = {name: attempts.load(name).candidate for name in ledger.stacked()}
            files, runtime = _files(run_dir)
    except (OSError, FolderUnusable, ValidationError) as error:
        raise RunDamaged(
            f"{run_dir} cannot be read: {str(error).splitlines()[0]}",
            hint="Its ledger.jsonl and attempts/ are needed, and its lock.",
        ) from error
    if not found:
        raise NothingWasKept(
            f"Run {folder.run_id} kept nothing, so there is nothing to judge again.",
            hint="`agent run` looks for changes; `agent runs` lists what runs kept.",
        )
    past = list[PastChange]()
    for name, candidate in found.items():
        changed, diff = files.get(name, ({}, candidate.diff))
        row, proposed = ledger.find(name), candidate.model_copy(update={"diff": diff, "role": "first"})
        past.append(PastChange(proposed, changed, row.speedup if row else None, runtime))
    return past


def _files(run_dir: Path) -> tuple[dict[str, tuple[Files, str]], dict[str, bytes]]:
    """By attempt its changed files and diff, and the files of our package; empty where the stack cannot be read."""
    try:
        stack = Stack.open(run_dir / "stack")
        found: dict[str, tuple[Files, str]] = {}
        below = stack.base
        for commit in stack.commits():
            changed = stack.changed(below, commit.commit)
            found[commit.attempt_id] = changed, diff_files(changed)
            below = commit.commit
        all_of_it = stack.changed(stack.base, below)
    except (GitError, StackError, OSError):
        return {}, {}
    ours = {
        path: state.data
        for path, (_, state) in all_of_it.items()
        if state is not None and PACKAGE in PurePosixPath(path).parts
    }
    return found, ours
