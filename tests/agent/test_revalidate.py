"""`agent revalidate`: what an earlier run kept is judged afresh, and what no longer earns its place is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import past_run
from agent.proposers import PastAttempt, Platform, ProposalRequest
from agent.proposers.replay import PastChange, Replay
from agent.records import run_folder
from agent.records.attempts import leave_out_id
from agent.reporting import afresh
from tests.agent.synthetic_clock import NO_GAIN, RANDOM_TITLES
from tests.agent.whole_runs import COPIES, TWO_BRANCHES, Ran, agent, command
from tests.files import write_files
from tools.candidate import Candidate, Key, Role
from tools.diff.patch import AppliedPatch, FileState, plan_patch, tree_reader
from tools.diff.patch_rules import PatchRules

STEPS = "profile_baseline,audit_compute,fuse_projections,compose_stack"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("revalidated")


@pytest.fixture(scope="module")
def target(place: Path) -> Path:
    return write_files(place / "target", {"bench.py": TWO_BRANCHES, "tail.py": COPIES})


@pytest.fixture(scope="module")
def first(place: Path, target: Path) -> Ran:
    ran = agent(target, place / "runs", "--steps", STEPS)
    assert ran.status == 0, ran.message
    assert len(ran.report.kept) == 2
    return ran


def asked(tree: Path, *attempts: PastAttempt, step: str = "audit_compute") -> ProposalRequest:
    unused: Any = None
    return ProposalRequest(step, tree, tree, "bench.py", False, unused, Platform("cpu"), attempts)


def outcomes(ran: Ran) -> list[tuple[str, str]]:
    assert ran.status == 0, ran.message
    return [(each.step, each.outcome) for each in ran.report.afresh]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_still_pays_is_kept_again_on_a_target_that_has_changed(place: Path, target: Path, first: Ran) -> None:
    changed = place / "changed"
    shutil.copytree(target, changed)
    (changed / "bench.py").write_text("# a line more\n" + TWO_BRANCHES)
    ran = command("revalidate", place / "runs", "changed", "one", "--target", str(changed), **{RANDOM_TITLES: "1"})
    assert outcomes(ran) == [("audit_compute", "kept"), ("fuse_projections", "kept")]
    assert [kept.key for kept in ran.report.kept] == [kept.key for kept in first.report.kept]
    assert "2 of 2 changes of an earlier run earn their place here." in ran.report.notes
    assert all(each.then and each.now for each in ran.report.afresh)
    page = (ran.run_dir / "report.md").read_text()
    assert "## Judged afresh" in page
    patch = (ran.run_dir / "ratchet.patch").read_text()
    assert "PackedLinear" in patch and "-        before = x.clone()" in patch
    assert {json.loads(line)["verdict"] for line in (ran.run_dir / "ledger.jsonl").read_text().splitlines()} <= {
        "kept",
        "slower",
    }, "nothing new was looked for"


@pytest.mark.slow
def test_what_needs_another_change_is_tried_again_on_the_whole_stack(place: Path, first: Ran) -> None:
    ran = command("revalidate", place / "runs", "again", "one", **{NO_GAIN: "audit_compute-1", RANDOM_TITLES: "1"})
    assert outcomes(ran) == [("audit_compute", "kept"), ("fuse_projections", "kept")]
    assert [kept.step for kept in ran.report.kept] == ["fuse_projections", "compose_stack"]


@pytest.mark.slow
def test_what_no_longer_fits_or_pays_is_said(place: Path, target: Path, first: Ran) -> None:
    changed = place / "rewritten"
    shutil.copytree(target, changed)
    (changed / "tail.py").write_text(COPIES.replace("before = x.clone()", "before = (x * 1).clone()"))
    ran = command("revalidate", place / "runs", "rewritten", "one", "--target", str(changed), **{NO_GAIN: "fuse_"})
    assert outcomes(ran) == [("audit_compute", "broken"), ("fuse_projections", "neutral")]
    assert ran.report.kept == [] and len(ran.report.attempts) == 2, "the same on the same stack is no second chance"
    assert "0 of 2 changes of an earlier run earn their place here." in ran.report.notes


def test_a_folder_without_its_stack_is_known_by_its_patches(place: Path, target: Path, first: Ran) -> None:
    copied = place / "copied"
    shutil.copytree(first.run_dir, copied)
    shutil.rmtree(copied / "stack")
    shutil.rmtree(copied / "pristine")
    whole, bare = past_run.changes(first.run_dir), past_run.changes(copied)
    assert [change.candidate.title for change in bare] == [change.candidate.title for change in whole]
    assert all(change.files for change in whole) and not any(change.files for change in bare)
    found = [Replay(changes, lambda *contents: None).propose(asked(target))[0] for changes in (whole, bare)]
    assert [[candidate.title for candidate in candidates] for candidates in found] == [[whole[0].candidate.title]] * 2
    for (candidate,) in found:
        assert isinstance(plan_patch(candidate.diff, tree_reader(target), PatchRules()), AppliedPatch)


def test_a_change_brings_along_what_another_had_brought_that_is_not_kept_now(tmp_path: Path) -> None:
    """Two changes in one file, of which the first is not kept: the second needs a file that came with the first."""
    base = write_files(tmp_path / "base", {"model.py": "import torch\n\na = 1\n\n\nb = 1\n"})
    second = "import torch\n\na = 2\n\n\nfrom ratchet_ops.second import b\n"
    ours = {
        "ratchet_ops/__init__.py": b"",
        "ratchet_ops/second.py": b"from . import shared\nb = shared.b\n",
        "ratchet_ops/shared.py": b"b = 2\n",
        "ratchet_ops/first.py": b"a = 2\n",
    }
    before = FileState(b"import torch\n\na = 2\n\n\nb = 1\n")
    files = {
        "model.py": (before, FileState(second.encode())),
        "ratchet_ops/second.py": (None, FileState(ours["ratchet_ops/second.py"])),
    }
    candidate = Candidate(step="audit_compute", title="second", rationale="", diff="unused")
    merged = b"import torch\n\na = 1\n\n\nfrom ratchet_ops.second import b\n"
    ((found,), _) = Replay([PastChange(candidate, files, None, ours)], lambda *given: merged).propose(asked(base))
    plan = plan_patch(found.diff, tree_reader(base), PatchRules())
    assert isinstance(plan, AppliedPatch)
    assert set(plan.files) == {"model.py", "ratchet_ops/__init__.py", "ratchet_ops/second.py", "ratchet_ops/shared.py"}


def test_what_was_kept_with_another_change_is_told_as_kept() -> None:
    changes = [
        PastChange(
            Candidate(step="audit_compute", title="", rationale="", diff="", key=Key(name, "model.py")), {}, None
        )
        for name in ("enabler", "gain", "never")
    ]

    def row(name: str, rewriter: str, verdict: str, role: Role = "first") -> Any:
        key = Key(rewriter, "model.py")
        return SimpleNamespace(attempt_id=name, key=key, role=role, verdict=verdict, reason="so", speedup=None)

    rows = [
        row("a-1", "enabler", "neutral"),
        row("a-2", "gain", "broken"),
        row("a-2-on", "gain", "kept", "on_enablers"),
    ]
    found = afresh.judged(changes, rows, ["a-1", "a-2-on"], {"audit_compute": "the target has it already"})
    assert [each.outcome for each in found] == ["kept", "kept", "not judged"]
    assert found[2].why == "the target has it already"
    without = row(leave_out_id("a-1"), "enabler", "kept", "leave_one_out")
    dropped = afresh.judged(changes[:1], [*rows, without], ["a-2-on"], {})
    assert dropped[0].outcome == "dropped"
    without = row(leave_out_id("a-1"), "gain", "kept", "leave_one_out")
    lost = afresh.judged(changes[1:2], [row("a-1", "gain", "kept"), without], [], {})
    assert (lost[0].outcome, lost[0].why) == ("dropped", "so")


def test_a_past_run_is_read_once_and_alone_and_must_have_kept_something(
    place: Path, first: Ran, tmp_path: Path
) -> None:
    past = place / "gone"
    shutil.copytree(first.run_dir, past)
    known = past_run.kept_changes(tmp_path, past)
    (past / "ledger.jsonl").write_text("")
    assert past_run.kept_changes(tmp_path, past) == known == past_run.changes(first.run_dir)
    ran = command("revalidate", place / "runs", "nothing", str(past))
    assert (ran.status, "kept nothing" in ran.message) == (57, True)
    assert not ran.run_dir.exists()
    assert command("revalidate", place / "runs", "nothing", "no-such-run").status == 51
    with run_folder.RunFolder(first.run_dir).locked():
        assert command("revalidate", place / "runs", "busy", "one").status == 52
