"""What waits for torch.compile: right, not timed by itself, kept or given up with it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import climb, waiting
from agent.budget import Budget
from agent.records.attempts import Attempt
from agent.records.ledger import Ledger, LedgerRow
from agent.repository.stack import Conflict, Stack
from agent.state import RunState
from agent.step_names import STEPS
from tests.agent.one_context import one_context
from tests.agent.whole_runs import ROOT, Ran, agent, process, run_options
from tools.candidate import Candidate

TASK = ROOT / "evals" / "tasks" / "kb_mlp"
SHORT = "profile_baseline,audit_compute,fuse_projections,compile_model,compose_stack"
FUSED = "Run gate and up of Model as one matrix multiplication"


def rows_of(ran: Ran) -> dict[str, LedgerRow]:
    assert ran.status == 0, ran.message
    return {row.attempt_id: row for row in Ledger.open(ran.run_dir / "ledger.jsonl").rows}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_kept_with_the_change_that_it_waited_for_also_when_the_run_is_killed_meanwhile(tmp_path: Path) -> None:
    target, ledger = shutil.copytree(TASK, tmp_path / "target"), tmp_path / "runs" / "one" / "ledger.jsonl"
    started = ("run", *run_options(target, tmp_path / "runs"), "--steps", SHORT, "--attempts", "1")
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(**process(*started, SYNTHETIC_COMPILED="0.5"), stdout=log, stderr=log)
    while running.poll() is None and not (ledger.exists() and FUSED in ledger.read_text()):
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    again = process("resume", "one", "--runs-dir", str(tmp_path / "runs"), SYNTHETIC_COMPILED="0.5")
    done = subprocess.run(**again, capture_output=True, text=True, timeout=500, check=False)
    ran = Ran(done.returncode, done.stderr, ledger.parent)
    rows = rows_of(ran)
    fused, compiled = rows["fuse_projections-1"], rows["compile_model-1"]
    assert (fused.title, fused.verdict, fused.speedup) == (FUSED, "right", None)
    assert "timed with the change of compile_model" in fused.reason
    assert compiled.verdict == "kept" and compiled.title.endswith("with what waits for it")
    assert compiled.stack is not None and compiled.stack[-2:] == ("fuse_projections-1", "compile_model-1")
    assert compiled.speedup is not None and compiled.speedup.median > 2.2, "of both together"
    stack = Stack.open(ran.run_dir / "stack")
    assert [kept.attempt for kept in ran.report.kept] == [each.attempt_id for each in stack.commits()]
    said = stack.git.text("log", "--format=%B", f"{stack.base}..{stack.top}")
    assert FUSED in said and "timed together with the change of compile_model" in said
    assert "over what lies below the 1 before it, together with them" in said
    page = (ran.run_dir / "report.md").read_text()
    assert f"| {FUSED} | with #" in page and ", with #" in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_given_up_with_the_change_that_it_waited_for_and_tried_by_itself(tmp_path: Path) -> None:
    target = shutil.copytree(TASK, tmp_path / "target")
    ran = agent(target, tmp_path / "runs", "--steps", SHORT, "--attempts", "2", SYNTHETIC_COMPILED="2.0")
    rows = rows_of(ran)
    titles = {row.title: row for row in rows.values()}
    assert [row.verdict for row in rows.values() if row.step == "compile_model"] == ["slower", "slower"]
    assert titles[f"{FUSED}, on the whole stack"].verdict == "kept"
    assert "Compile" not in " ".join(kept.title for kept in ran.report.kept)
    assert f"given up with it: {FUSED}" in ran.message


def candidate(title: str, timed_with: str = "", step: str = "swap_attention") -> Candidate:
    return Candidate(step=step, title=title, rationale="", diff=title, timed_with=timed_with)


Answers = dict[tuple[str, ...], list[Candidate]]


def context(answers: Answers, *rows: tuple[str, str, str], steps: tuple[str, ...] = STEPS) -> Any:
    """It proposes by what lies below. `rows`: attempt, step and verdict; each is timed with compile_model."""

    def propose(
        step: str, below: tuple[str, ...] = (), *, looking: bool = False, by_itself: bool = False
    ) -> tuple[list[Candidate], str]:
        assert looking or not below, "who takes time or money works on nothing unproven"
        found = [each for each in answers.get(below, []) if not (by_itself and each.timed_with)]
        return found, "" if found else "nothing was found"

    return one_context(
        attempts=SimpleNamespace(load=lambda name: SimpleNamespace(candidate=candidate(name, "compile_model"))),
        ledger=SimpleNamespace(rows=[SimpleNamespace(attempt_id=a, step=s, verdict=v) for a, s, v in rows]),
        config=SimpleNamespace(steps=steps),
        change_of=lambda name: name,
        propose=propose,
        stack=SimpleNamespace(top="top", build=lambda changes, on: Conflict("x", "") if "clash" in changes else "new"),
    )


WAITS = ("a", "fuse_projections", "right")


def offered(ctx: Any, step: str = "swap_attention", *, only_checked: bool = False) -> tuple[list[str], tuple[str, ...]]:
    found = waiting.offer(ctx, step, only_checked=only_checked)
    return [each.shown for each in found.candidates], found.below


def test_what_is_timed_by_itself_has_nothing_unproven_below() -> None:
    alone, later = candidate("alone"), candidate("later", "compile_model")
    assert offered(context({(): [alone, later], ("a",): [later]}, WAITS)) == (["alone"], ())
    assert offered(context({(): [later], ("a",): [later, alone]}, WAITS)) == (["later"], ("a",))
    assert offered(context({(): [later]})) == (["later"], ())


def test_where_nothing_can_be_made_on_what_waits_it_is_anothers_turn() -> None:
    alone, later = candidate("of a model"), candidate("later", "compile_model")
    ctx = context({(): [later]}, WAITS)
    assert offered(ctx) == ([], ()) and waiting.offer(ctx, "swap_attention").reason == "nothing was found"
    first = [later]
    ctx = context({(): first}, WAITS)
    propose = ctx.propose
    ctx.propose = lambda *said, **how: ([alone], "") if how.get("by_itself") else propose(*said, **how)
    assert offered(ctx) == (["of a model"], ())


def test_in_a_hurry_only_what_is_checked_is_offered() -> None:
    alone, later = candidate("alone"), candidate("later", "compile_model")
    assert offered(context({(): [alone, later]}), only_checked=True) == (["later"], ())
    assert offered(context({(): [alone]}), only_checked=True) == ([], ())
    assert offered(context({(): [later]}, WAITS), only_checked=True) == ([], ("a",))
    on_it = candidate("later, made on a", "compile_model")
    for first in ([later], [alone, later]):
        assert offered(context({(): first, ("a",): [on_it]}, WAITS), only_checked=True) == ([on_it.title], ("a",))


def test_the_step_that_is_waited_for_tries_all_of_it_first_and_then_by_itself() -> None:
    answers = {(): [candidate("plain")], ("a",): [candidate("both")]}
    assert offered(context(answers, WAITS), "compile_model") == (["both, with what waits for it"], ("a",))
    tried = ("b", "compile_model", "slower")
    assert offered(context(answers, WAITS, tried), "compile_model") == (["plain"], ())
    assert offered(context(answers, WAITS), "compose_stack") == (["plain"], ())
    assert offered(context({(): [candidate("plain")]}, WAITS), "compile_model") == (["plain"], ())


def test_what_no_longer_fits_on_the_top_does_not_wait() -> None:
    found = waiting.what_waits(context({}, ("clash", "fuse_projections", "right"), WAITS), "swap_attention")
    assert found == ("a",)


@pytest.mark.parametrize(
    ("step", "timed_with", "rows", "steps", "waits"),
    [
        ("fuse_projections", "compile_model", (), STEPS, True),
        ("fuse_projections", "", (), STEPS, False),
        ("fuse_projections", "compile_model", (), ("fuse_projections",), False),
        ("compose_stack", "compile_model", (), STEPS, False),
        ("fuse_projections", "compile_model", (("b", "compile_model", "broken"),), STEPS, False),
    ],
)
def test_nothing_waits_for_a_step_that_is_over_or_never_comes(
    step: str, timed_with: str, rows: tuple[tuple[str, str, str], ...], steps: tuple[str, ...], waits: bool
) -> None:
    assert waiting.may_wait(context({}, *rows, steps=steps), step, timed_with) == waits


def diagnosed(verdict: str, attempt: Attempt, shadow: list[str]) -> tuple[Any, list[Any]]:
    """What `diagnose` returns, and what was told and adopted."""
    ctx, told = context({}), list[Any]()
    ctx.attempts = SimpleNamespace(
        load=lambda name: (
            attempt if name == attempt.id else SimpleNamespace(candidate=candidate(name, "compile_model"))
        ),
        save=told.append,
    )
    ctx.progress = SimpleNamespace(emit=told.append)
    ctx.budget = Budget()
    ctx.base = lambda below: ("commit of", *below)
    ctx.adopt = lambda attempt, commit: told.append(commit)
    state = RunState(attempt=attempt.id, verdict=verdict, shadow=shadow)
    return climb.diagnose(state, ctx), told


def test_what_waits_is_never_put_on_enablers() -> None:
    """They have no step that times them, and a try on them would take the change out of what waits."""
    waits = Attempt(id="b", candidate=candidate("b", "compile_model"), base="c", below=("a",))
    found, told = diagnosed("right", waits, ["enabler"])
    assert found == {"attempt": ""} and told == [("commit of", "a", "b")]
    broken = waits.model_copy(update={"below": ()})
    assert diagnosed("broken", broken, ["enabler"]) == ({"attempt": ""}, [])
