"""`agent verify` and `agent measure`: ask the referee about one change, without a run.

The change is a patch, or another version of the repository. Nothing is committed or kept. `verify` is the whole check
of a run, `measure` the rule that a run decides by.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from agent import run as running
from agent.config import RunConfig
from agent.errors import WrongUsage
from agent.reporting import wording
from agent.reporting.open_progress import open_progress
from agent.reporting.progress import Judging, Note, Progress
from agent.repository.target import find_entry, find_target, import_target
from sandbox.choose import Agree
from tools.diff.patch import PatchFinding, apply_patch
from tools.diff.patch_rules import PatchRules, never_allowed
from tools.integrity import hash_tree
from tools.judging.referee import Referee
from tools.judging.verdict import Verdict
from tools.judging.worker import Build
from tools.tree_removal import passable_folder

NOT_KEPT = 3  # exit status: it is not right, or no gain was shown


def run(arguments: argparse.Namespace, config: RunConfig, agree: Agree, *, timed: bool) -> int:
    """Print the verdict; 0 when the change is right (and, where it is timed, faster), else 3. Raises: RatchetError."""
    config = running.settle(config, agree)
    with passable_folder("ratchet-judge-") as folder, open_progress(as_json=False) as progress:
        verdict = _judged(config, folder, arguments.change, progress, timed)
    said = verdict.model_dump(mode="json")
    if arguments.json:
        print(json.dumps(said, indent=1))
    else:
        gain = f", {wording.speedup(verdict.speedup)} over the original" if verdict.speedup is not None else ""
        print(f"{verdict.name}{gain}: {verdict.reason}")
    return 0 if verdict.name in ("kept", "right") else NOT_KEPT


def _judged(config: RunConfig, folder: Path, change: Path, progress: Progress, timed: bool) -> Verdict:
    target = find_target(config.target)
    import_target(target, folder / "pristine")
    refused = _changed(folder, change)
    if refused is not None:
        return refused
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o711)
    config = config.model_copy(update={"target": target, "entry": find_entry(target, config.entry)})
    with running.sandbox_for(config, folder / "sandbox", (folder,), lambda said: progress.emit(Note(said))) as sandbox:
        referee = running.referee_for(config, folder / "pristine", sandbox, scratch, compiles=timed)
        referee.say = lambda phase, done, of: progress.emit(Judging(str(change), phase, done, of))
        with closing(referee):
            protected = running.protection(config, referee.workload)
            refused = _touched(folder, protected)
            return refused or _asked(referee, Build(hash_tree(folder / "changed")[:16], folder / "changed"), timed)


def _changed(folder: Path, change: Path) -> Verdict | None:
    """Make the changed tree; a verdict where it cannot be made. Raises: WrongUsage, TargetError."""
    if change.is_dir():
        import_target(find_target(change), folder / "changed")
        return None
    try:
        diff = change.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise WrongUsage(f"--change: {change} is neither a folder nor a patch that can be read: {error}") from error
    shutil.copytree(folder / "pristine", folder / "changed", symlinks=True)
    found = apply_patch(diff, folder / "changed", PatchRules())
    return Verdict(name=found.kind, reason=found.reason) if isinstance(found, PatchFinding) else None


def _touched(folder: Path, protected: Callable[[str], str | None]) -> Verdict | None:
    """A verdict where a file differs that no change may touch."""
    before, after = folder / "pristine", folder / "changed"
    both = {path.relative_to(tree).as_posix() for tree in (before, after) for path in tree.rglob("*") if path.is_file()}
    _, differ, missing = filecmp.cmpfiles(before, after, both, shallow=False)
    for path in sorted([*differ, *missing]):
        if why := never_allowed(path) or protected(path):
            return Verdict(name="refused", reason=f"it touches {path}: {why}")
    return None


def _asked(referee: Referee, changed: Build, timed: bool) -> Verdict:
    original = referee.check_pristine().build
    if timed:
        referee.prepare_compiler()
        referee.run_own_tests()
    checked = referee.check(changed)
    verdict = checked.finding.as_verdict("it passes the whole check; nothing was timed")
    if verdict.name != "right" or not timed:
        return verdict
    referee.measure_noise()
    return referee.time(checked, original)
