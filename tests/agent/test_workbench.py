"""A candidate worked out with the tools: on a real run, whose clock alone is synthetic."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import climb, run
from agent.budget import Budget, longest_wait_s
from agent.config import RunConfig
from agent.context import RunContext
from agent.records import run_folder
from agent.records.attempts import Attempt
from agent.reporting.progress import Progress
from agent.state import RunState
from agent.workbench import REGISTRY, Workbench
from tests import forking
from tests.agent.synthetic_clock import SyntheticClock
from tests.agent.whole_runs import COPIES, TWO_BRANCHES
from tests.files import write_files
from tools.isa.gate import Looked
from tools.judging.measure import ComparisonRequest
from tools.registry import Answer

MINUTES = 30.0


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunContext]:
    place = tmp_path_factory.mktemp("workbench")
    target = write_files(place / "target", {"bench.py": TWO_BRANCHES, "tail.py": COPIES})
    config = RunConfig(
        target=target,
        entry="bench.py",
        runs_dir=place / "runs",
        run_id="one",
        sandbox="local",
        python=Path(sys.executable),
        seed=1,
        budget_minutes=MINUTES,
    )
    folder = run_folder.create(config)
    with (
        forking.chosen(),
        folder.locked(),
        run._scratch(folder.path) as scratch,
        run.sandbox_for(config, folder.path / "sandbox", (scratch, folder.path / "pristine"), print) as sandbox,
    ):
        made = run._assemble(folder, scratch, sandbox, Progress(), Budget(), resumed=False)
        with contextlib.closing(made.referee):
            made.referee.clock = clock = SyntheticClock()
            pristine = made.builds.pristine_checked().build
            aa = ComparisonRequest("aa", pristine, {"candidate": pristine}, lambda found: len(found.log_ratios) >= 12)
            made.referee.use_noise(clock.compare(aa).only)
            yield made


@pytest.fixture
def bench(ctx: RunContext, request: pytest.FixtureRequest) -> Workbench:
    return Workbench.open(ctx, "audit_compute", request.node.name.replace("[", "-").replace("]", ""))


def call(bench: Workbench, name: str, **arguments: Any) -> Answer:
    return REGISTRY.call(bench, name, arguments)


def test_what_is_wrong_or_broken_or_no_change_is_told_and_not_timed(bench: Workbench) -> None:
    for name in ("verify", "measure"):
        assert "Nothing is changed yet." in call(bench, name).text
    call(bench, "edit_file", path="tail.py", old="x.clone()", new="x * 2")
    assert call(bench, "verify").text.startswith("wrong: ")
    for answer in (call(bench, "measure"), call(bench, "show_profile", which="candidate")):
        assert not answer.worked and "It is wrong" in answer.text
    call(bench, "edit_file", path="tail.py", old="x * 2", new="x.no_such_method()")
    assert "no_such_method" in call(bench, "verify").text


def test_the_budget_says_how_long_a_build_that_compiles_itself_is_waited_for(ctx: RunContext) -> None:
    assert ctx.referee.setting.check_timeout_s == longest_wait_s(MINUTES)


def test_the_tree_of_a_draft_goes_when_the_next_one_is_made(bench: Workbench, ctx: RunContext) -> None:
    trees = ctx.builds.scratch / "trees"
    before = set(trees.iterdir())
    for number in range(3):
        call(bench, "write_file", path="more.py", content=f"N = {number}\n")
        assert f"N = {number}" in call(bench, "run", command="cat more.py").text
        assert len(set(trees.iterdir()) - before) == 1
    call(bench, "write_file", path="more.py", content="N = 1\n")
    assert call(bench, "verify").text.startswith("right"), "one that was there before is built again"
    assert "bench.py" in call(bench, "show_profile", which="candidate").text
    found = bench.candidate("A file more", "It is not read.", 1.2)
    assert (found.step, found.origin, found.predicted_gain) == ("audit_compute", "llm", 1.2)


def test_a_command_does_not_see_what_may_hold_secrets(bench: Workbench) -> None:
    (bench.worktree.work / ".env").write_text("TOKEN=hunter2")  # as if the target had it
    (bench.ctx.builds.top().tree / ".env").write_text("TOKEN=hunter2")
    try:
        told = call(bench, "run", command="cat .env; ls; echo changed > tail.py && cat tail.py").text
    finally:
        (bench.ctx.builds.top().tree / ".env").unlink()
    assert "hunter2" not in told and "bench.py" in told and "changed" in told


def test_kernels_are_looked_at_as_they_are_when_a_candidate_is_judged(
    bench: Workbench, ctx: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[str]()

    def look(attempt: Attempt) -> Looked:
        looked.append(attempt.id)
        return Looked(faults=("tail.py: the kernel spills 90 registers on gfx942",))

    monkeypatch.setattr(ctx.builds, "looked_at_kernels", look)
    call(bench, "edit_file", path="tail.py", old="x.clone()", new="x")
    assert call(bench, "verify").text.startswith("broken: tail.py: the kernel spills 90 registers")
    assert "Only what is right is timed" in call(bench, "measure").text and len(looked) == 1, "once for each draft"
    call(bench, "edit_file", path="tail.py", old="before = x", new="before = 1 * x")
    call(bench, "verify")
    assert len(set(looked)) == len(looked) == 2


def test_an_attempt_whose_kernels_have_a_fault_is_given_up_before_it_is_run_and_leaves_no_tree(
    bench: Workbench, ctx: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Looked(faults=("the kernel spills 90 registers",), looked_at=("k on gfx942: 512 registers",))
    monkeypatch.setattr(ctx.builds, "looked_at_kernels", lambda attempt: looked)
    monkeypatch.setattr(ctx.referee, "check", lambda build: pytest.fail("it was run"))
    call(bench, "edit_file", path="tail.py", old="x.clone()", new="x")
    attempt = Attempt(id="audit_compute-1", candidate=bench.candidate("Copy nothing", "", None), base=ctx.stack.top)
    ctx.attempts.save(attempt)
    state, tree = RunState(attempt=attempt.id), ctx.builds.scratch / "trees" / attempt.id
    assert climb.apply(state, ctx) == {"verdict": ""} and tree.exists()
    assert climb.verify(state, ctx) == climb.decide(state, ctx) == {"verdict": "broken"} and not tree.exists()
    assert "spills 90 registers" in ctx.ledger.rows[-1].reason
    assert ctx.ledger.rows[-1].evidence["correctness"]["kernels"] == looked.evidence()


def test_the_entry_and_long_profiles_are_shown(bench: Workbench) -> None:
    assert "class Model" in call(bench, "read_file", path="bench.py").text
    for which in ("original", "stack"):
        assert "[… " not in call(bench, "show_profile", which=which, kernels=3).text
    from_second = call(bench, "show_profile", first_line=2)
    assert from_second.worked and "Profile of" not in from_second.text
    assert "has " in call(bench, "show_profile", first_line=9999).text
