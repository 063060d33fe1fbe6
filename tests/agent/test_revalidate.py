"""`agent revalidate`: what an earlier run kept is judged afresh, and what no longer earns its place is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent import past_run
from agent.past_run import NothingWasKept
from agent.proposers import Platform, ProposalRequest
from agent.proposers.replay import Replay
from agent.records import run_folder
from tests.agent.synthetic_clock import NO_GAIN
from tests.agent.whole_runs import COPIES, TWO_BRANCHES, Ran, agent, command
from tests.files import write_files
from tools.diff.patch import AppliedPatch, plan_patch, tree_reader
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


def outcomes(ran: Ran) -> list[tuple[str, str]]:
    assert ran.status == 0, ran.message
    return [(each.step, each.outcome) for each in ran.report.afresh]


def test_what_still_pays_is_kept_again_on_a_target_that_has_changed(place: Path, target: Path, first: Ran) -> None:
    changed = place / "changed"
    shutil.copytree(target, changed)
    (changed / "bench.py").write_text("# a line more\n" + TWO_BRANCHES)
    ran = command("revalidate", place / "runs", "changed", "one", "--target", str(changed))
    assert outcomes(ran) == [("audit_compute", "kept"), ("fuse_projections", "kept")]
    assert [kept.title for kept in ran.report.kept] == [kept.title for kept in first.report.kept]
    assert "2 of 2 changes of an earlier run earn their place here." in ran.report.notes
    assert all(each.then and each.now for each in ran.report.afresh)
    page = (ran.run_dir / "report.md").read_text()
    assert "## Judged afresh" in page
    patch = (ran.run_dir / "ratchet.patch").read_text()
    assert "PackedLinear" in patch and "-        before = x.clone()" in patch
    assert {json.loads(line)["verdict"] for line in (ran.run_dir / "ledger.jsonl").read_text().splitlines()} <= {
        "kept", "slower",
    }, "nothing new was looked for"  # fmt: skip


def test_what_needs_another_change_is_tried_again_on_the_whole_stack(place: Path, first: Ran) -> None:
    ran = command("revalidate", place / "runs", "again", "one", **{NO_GAIN: "audit_compute-1"})
    assert outcomes(ran) == [("audit_compute", "kept"), ("fuse_projections", "kept")]
    assert [kept.step for kept in ran.report.kept] == ["fuse_projections", "compose_stack"]


def test_what_no_longer_fits_or_pays_is_said(place: Path, target: Path, first: Ran) -> None:
    changed = place / "rewritten"
    shutil.copytree(target, changed)
    (changed / "tail.py").write_text(COPIES.replace("before = x.clone()", "before = (x * 1).clone()"))
    ran = command("revalidate", place / "runs", "rewritten", "one", "--target", str(changed), **{NO_GAIN: "screen"})
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
    unused: Any = None
    request = ProposalRequest("audit_compute", target, target, "bench.py", False, unused, Platform("cpu"))
    found = [Replay(changes, lambda *contents: None).propose(request)[0] for changes in (whole, bare)]
    assert [[candidate.title for candidate in candidates] for candidates in found] == [[whole[0].candidate.title]] * 2
    for (candidate,) in found:
        assert isinstance(plan_patch(candidate.diff, tree_reader(target), PatchRules()), AppliedPatch)


def test_there_must_be_something_to_judge(place: Path, first: Ran) -> None:
    none = place / "none"
    shutil.copytree(first.run_dir, none)
    (none / "ledger.jsonl").write_text("")
    with pytest.raises(NothingWasKept):
        past_run.changes(none)
    ran = command("revalidate", place / "runs", "nothing", str(none))
    assert (ran.status, "kept nothing" in ran.message) == (57, True)
    assert not ran.run_dir.exists()
    assert command("revalidate", place / "runs", "nothing", "no-such-run").status == 51


def test_a_run_that_is_being_worked_on_is_left_alone(place: Path, first: Ran) -> None:
    with run_folder.RunFolder(first.run_dir).locked():
        assert command("revalidate", place / "runs", "busy", "one").status == 52
