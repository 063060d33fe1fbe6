"""What waits for torch.compile: right, not timed by itself, kept or given up with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import waiting
from agent.records.attempts import Attempt
from agent.records.ledger import Ledger, LedgerRow
from agent.repository.stack import Stack
from agent.state import RunState
from tests.agent.whole_runs import ROOT, Ran, agent
from tools.candidate import Candidate

TASK = ROOT / "evals" / "tasks" / "kb_mlp"
STEPS = "profile_baseline,audit_compute,fuse_projections,compile_model,compose_stack"
FUSED = "Run gate and up of Model as one matrix multiplication"


def rows_of(ran: Ran) -> dict[str, LedgerRow]:
    assert ran.status == 0, ran.message
    return {row.attempt_id: row for row in Ledger.open(ran.run_dir / "ledger.jsonl").rows}


@pytest.mark.timeout(600)
def test_it_is_kept_with_the_change_that_it_waited_for_also_when_the_run_is_killed_meanwhile(tmp_path: Path) -> None:
    target, ledger = shutil.copytree(TASK, tmp_path / "target"), tmp_path / "runs" / "one" / "ledger.jsonl"
    argv = [sys.executable, "-m", "tests.agent.synthetic_clock", "run", "--runs-dir", str(tmp_path / "runs"),
            "--run-id", "one", "--sandbox", "local", "--python", sys.executable, "--target", str(target), "--entry",
            "bench.py", "--steps", STEPS, "--attempts", "1"]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        environment = {**os.environ, "SYNTHETIC_COMPILED": "0.5"}
        process = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log, env=environment)
    while process.poll() is None and not (ledger.exists() and FUSED in ledger.read_text()):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    again = [*argv[:3], "resume", "one", "--runs-dir", str(tmp_path / "runs")]
    done = subprocess.run(again, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    ran = Ran(done.returncode, done.stderr, ledger.parent)
    rows = rows_of(ran)
    fused, compiled = rows["fuse_projections-1"], rows["compile_model-1"]
    assert (fused.title, fused.verdict, fused.speedup) == (FUSED, "neutral", None)
    assert "timed together with what compile_model tries" in fused.reason
    assert compiled.verdict == "kept" and compiled.title.endswith("with what waits for it")
    assert compiled.stack is not None and compiled.stack[-2:] == ("fuse_projections-1", "compile_model-1")
    assert compiled.speedup is not None and compiled.speedup.median > 2.2, "of both together"
    stack = Stack.open(ran.run_dir / "stack")
    assert [kept.attempt for kept in ran.report.kept] == [each.attempt_id for each in stack.commits()]
    said = stack.git.text("log", "--format=%B", f"{stack.base}..{stack.top}")
    assert FUSED in said and "its gain is part of that of a later commit" in said


@pytest.mark.timeout(600)
def test_it_is_given_up_with_the_change_that_it_waited_for_and_tried_by_itself(tmp_path: Path) -> None:
    target = shutil.copytree(TASK, tmp_path / "target")
    ran = agent(target, tmp_path / "runs", "--steps", STEPS, "--attempts", "2", SYNTHETIC_COMPILED="2.0")
    rows = rows_of(ran)
    titles = {row.title: row for row in rows.values()}
    assert [row.verdict for row in rows.values() if row.step == "compile_model"] == ["slower", "slower"]
    assert titles[f"{FUSED}, on the whole stack"].verdict == "kept"
    assert "Compile" not in " ".join(kept.title for kept in ran.report.kept)


def candidate(title: str, timed_with: str = "") -> Candidate:
    return Candidate(step="swap_attention", title=title, rationale="", diff=title, timed_with=timed_with)


def context(answers: dict[tuple[str, ...], list[Candidate]]) -> Any:
    """It proposes by what waits below."""
    waits = SimpleNamespace(candidate=candidate("first", "compile_model"))
    ctx = SimpleNamespace(
        waiting=[], attempts=SimpleNamespace(load=lambda name: waits), change_of=lambda name: name,
        stack=SimpleNamespace(build=lambda changes, on: "commit", top="top"),
    )  # fmt: skip
    ctx.propose = lambda step: (answers[tuple(ctx.waiting)], "nothing" if not answers[tuple(ctx.waiting)] else "")
    return ctx


def test_what_is_timed_by_itself_has_nothing_unproven_below() -> None:
    alone, later = candidate("alone"), candidate("later", "compile_model")
    ctx, state = context({(): [alone, later], ("a",): [later]}), RunState(waiting=["a"])
    assert waiting.candidates(state, ctx, "swap_attention") == ([alone], "", ["a"])
    assert ctx.waiting == []
    ctx = context({(): [later], ("a",): [later, alone]})
    assert waiting.candidates(state, ctx, "swap_attention") == ([later], "", ["a"])
    assert ctx.waiting == ["a"]


def test_the_step_that_is_waited_for_tries_all_of_it_first_and_later_ones_nothing() -> None:
    ctx, state = context({(): [candidate("plain")], ("a",): [candidate("both")]}), RunState(waiting=["a"])
    found, _, waits = waiting.candidates(state, ctx, "compile_model")
    assert [each.title for each in found] == ["both, with what waits for it"] and ctx.waiting == waits == ["a"]
    found, _, waits = waiting.candidates(state, ctx, "compose_stack")
    assert [each.title for each in found] == ["plain"] and ctx.waiting == waits == []


def test_what_waits_is_over_when_it_was_kept_or_tried_in_vain() -> None:
    ctx, state = context({}), RunState(waiting=["a"])

    def attempt(step: str, *below: str) -> Attempt:
        return Attempt(id="b", candidate=candidate("b").model_copy(update={"step": step}), base="c",
                       with_shadow=list(below))  # fmt: skip

    assert waiting.after(attempt("compile_model", "a"), "kept", state, ctx) == []
    assert waiting.after(attempt("compile_model", "a"), "broken", state, ctx) == []
    assert waiting.after(attempt("swap_attention"), "kept", state, ctx) == ["a"]
    assert waiting.after(attempt("swap_attention"), "neutral", state, ctx) == ["a"]
