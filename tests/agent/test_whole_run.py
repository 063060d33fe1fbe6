"""Whole runs of the command line on awkward targets. Everything is real but the clock; see `synthetic_clock.py`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.records import measurements
from tests.agent.hostile import set_traps
from tests.agent.synthetic_clock import NO_GAIN, TAKEN, UNSTEADY
from tests.agent.whole_runs import COPIES, ROOT, TWO_BRANCHES, Ran, agent, repository
from tests.files import write_files
from tools.integrity import hash_tree
from tools.private_git import PrivateGit

TASK = ROOT / "evals" / "tasks" / "kb_mlp" / "bench.py"
DECOYS = {
    "tools/scale.py": "SCALE = 1.0\n",  # a folder without __init__.py
    "agent/__init__.py": "NAME = 'the target'\n",
    "agent/cli.py": "raise RuntimeError('this is the target')\n",
    "sandbox/__init__.py": "from profile import NAME\n",
    "profile.py": "NAME = 'not the standard module'\n",
}
USES_THEM = """
from agent import NAME as agent_name
from sandbox import NAME as profile_name
from tools.scale import SCALE
assert (agent_name, profile_name, SCALE) == ("the target", "not the standard module", 1.0)
"""
TESTS = """
import torch
from bench import Model

def test_the_two_halves_are_two_layers():
    model = Model(8, 16, 1e-6)
    assert type(model.gate) is torch.nn.Linear and model.gate.weight.is_contiguous()

def test_the_residual_is_copied():
    assert ".clone()" in open("bench.py").read()
"""
# -- one run on a repository with our packages' names, traps in its `.git`, uncommitted changes and tests


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("awkward")


@pytest.fixture(scope="module")
def target(place: Path) -> Path:
    files = {**DECOYS, "bench.py": TASK.read_text(), "tests/test_bench.py": TESTS}
    target = repository(write_files(place / "target", files))
    (target / "bench.py").write_text(USES_THEM + TASK.read_text())
    (target / "new.txt").write_text("not committed\n")
    return target


def files_of(target: Path) -> str:
    return hash_tree(target, leave_out=lambda path: path.name == ".git")


@pytest.fixture(scope="module")
def ran(place: Path, target: Path) -> Ran:
    marks = set_traps(target, place / "traps")
    before = files_of(target)
    found = agent(target, place / "runs")
    assert found.status == 0, found.message
    assert list(marks.iterdir()) == [], "something in the target's .git ran"
    assert files_of(target) == before
    return found


@pytest.mark.timeout(600)
@pytest.mark.guard("a .git that runs code")
def test_it_keeps_something_whatever_the_repository_holds(ran: Ran, target: Path) -> None:
    assert len(ran.report.steps) == 10 and ran.report.kept
    assert "2 files with uncommitted changes included as found" in ran.report.notes
    branch = PrivateGit(target / ".git")
    assert b"agent_name" in branch.run("show", f"{ran.report.branch}:bench.py").stdout
    assert branch.run("show", f"{ran.report.branch}:new.txt").stdout == b"not committed\n"
    assert any("2 tests of the target pass" in note for note in ran.report.notes)
    dropped = [a for a in ran.report.attempts if a.verdict == "wrong" and "own tests" in a.why]
    assert dropped, [(a.title, a.verdict, a.why) for a in ran.report.attempts]
    assert not {a.id for a in dropped} & {kept.attempt for kept in ran.report.kept}


@pytest.mark.slow
def test_gains_that_are_gone_when_the_whole_is_measured_once_more_are_not_handed_over(tmp_path: Path) -> None:
    target = write_files(tmp_path / "target", {"bench.py": TASK.read_text()})
    ran = agent(target, tmp_path / "runs", "--steps", "profile_baseline,audit_compute", **{NO_GAIN: "whole stack"})
    assert ran.status == 0, ran.message
    assert (ran.report.kept, ran.report.speedup, ran.report.result) == ([], None, None)
    assert any(a.verdict == "kept" for a in ran.report.attempts), "each was proven when it was made"
    last = ran.report.attempts[-1]
    assert last.verdict == "neutral" and "not shown to be faster than the original in 12 restarts" in last.why
    assert "kept, later dropped" in (ran.run_dir / "report.md").read_text()


@pytest.mark.slow
def test_a_commit_that_is_worth_nothing_in_the_whole_is_dropped_and_said_to_be(tmp_path: Path) -> None:
    target = write_files(tmp_path / "target", {"bench.py": TWO_BRANCHES, "tail.py": COPIES})
    steps = "profile_baseline,audit_compute,fuse_projections,compose_stack"
    ran = agent(target, tmp_path / "runs", "--steps", steps, "--json", **{NO_GAIN: "leave out"})
    assert ran.status == 0, ran.message
    told = [json.loads(line) for line in ran.output.splitlines()]
    grew = {row["commit"]: row["title"] for row in told if row["event"] == "stack_grew"}
    shrank = {row["commit"]: row["title"] for row in told if row["event"] == "stack_shrank"}
    assert shrank and shrank.items() < grew.items(), "under the commit by which it was known, and never the last"
    assert {kept.title for kept in ran.report.kept} == set(grew.values()) - set(shrank.values())


# -- and on one that cannot be written to


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Make a folder one that nothing can write to, root included where we are root."""
    mounted: list[Path] = []

    def close(folder: Path) -> None:
        if os.geteuid() == 0:
            subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
            mounted.append(folder)
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        else:
            for path in (folder, *folder.rglob("*")):
                path.chmod(path.stat().st_mode & ~0o222)

    yield close
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
    for path in (p for p in tmp_path.rglob("*") if p.is_dir() and not p.is_symlink()):
        path.chmod(path.stat().st_mode | 0o700)


def unsteady(target: Path, runs: Path, taken: float) -> tuple[Ran, str]:
    """A run whose machine changes its pace when the whole is measured, and what it notes about that."""
    how = {UNSTEADY: "whole stack", TAKEN: str(taken)}
    ran = agent(target, runs, "--steps", "profile_baseline,audit_compute", **how)
    assert ran.status == 0, ran.message
    assert ran.report.kept and ran.report.result is not None, "each was proven when it was made"
    (note,) = [note for note in ran.report.notes if "the machine changes its pace" in note]
    return ran, note


@pytest.mark.slow
def test_a_whole_that_is_measured_at_an_unsteady_pace_is_counted_low(tmp_path: Path) -> None:
    target = write_files(tmp_path / "target", {"bench.py": TASK.read_text()})
    ran, note = unsteady(target, tmp_path / "runs", 1.05)
    whole = measurements.whole(ran.run_dir)
    assert whole is not None and whole.over_eager.interval().ci_low > 1.1, "what was measured stays"
    assert ran.report.speedup is not None
    assert ran.report.speedup.median == pytest.approx(whole.over_eager.interval().median / 1.05)
    assert note.startswith("Gains over the unmodified target are counted low")


def test_a_read_only_repository_gets_its_result_as_a_folder_and_no_speedup_that_could_not_be_measured(
    tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    target = repository(write_files(tmp_path / "target", {"bench.py": TASK.read_text()}))
    read_only(target)
    ran, note = unsteady(target, tmp_path / "runs", 10.0)
    assert ran.report.branch is None and ran.report.result is not None
    assert (Path(ran.report.result) / "bench.py").read_text() != TASK.read_text()
    assert any("No branch was written, because" in note for note in ran.report.notes), ran.report.notes
    assert ran.report.speedup is None and note.startswith("The whole could not be measured")


@pytest.mark.slow
@pytest.mark.parametrize("purpose", ["aa", "whole stack"])
def test_a_guard_that_fires_on_the_original_ends_no_run(purpose: str, tmp_path: Path) -> None:
    target = write_files(tmp_path / "target", {"bench.py": TASK.read_text()})
    ran = agent(target, tmp_path / "runs", "--steps", "profile_baseline,fuse_projections", **{UNSTEADY: purpose})
    assert ran.status == 0, ran.message
    assert ran.report.speedup is None and bool(ran.report.kept) is (purpose != "aa")
    why = {"aa": "This machine is too noisy to keep anything", "whole stack": "The whole could not be measured"}[
        purpose
    ]
    assert f"{why}: a guard fired on what is to be improved." in ran.report.notes
    assert bool(ran.report.baselines.eager.failed) is (purpose == "aa")
    assert ran.report.steps[0].reason.startswith("its calls could not be timed") is (purpose == "aa")


# -- and on one that behaves otherwise when it is looked into

LOOKS_ROUND = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        if torch.overrides._get_current_function_mode_stack():
            raise RuntimeError("somebody looks into me")
        return x @ x + x

def build():
    return Model().eval()

def inputs(seed):
    return (torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)),)
"""


def test_what_cannot_be_observed_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    target = write_files(tmp_path / "target", {"bench.py": LOOKS_ROUND})
    ran = agent(target, tmp_path / "runs", "--steps", "profile_baseline,locate_layers,audit_compute")
    assert ran.status == 0, ran.message
    assert "somebody looks into me" in ran.message
    steps = {step.name: step for step in ran.report.steps}
    assert steps["profile_baseline"].status == "done"
    assert "could not be observed" in steps["locate_layers"].reason
    assert "could not be observed" in steps["audit_compute"].reason
    assert ran.report.kept == []
