"""What a run leaves to the user is said once, and only where it was measured."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.reporting.outcome import _advice, compile_advice, since_it_began, time_shares
from agent.repository.stack import StackCommit
from agent.repository.target import tree_hash
from tests.agent.one_context import one_context
from tests.files import write_files
from tests.tools.profiler.sample_profile import cpu_decoder
from tools.candidate import Key
from tools.judging.comparison import Comparison


def comparison(speedup: float) -> Comparison:
    """Six restarts that all measured the same."""
    return Comparison(purpose="baseline", incumbent="a", candidate="b", case_log_ratios=[[math.log(speedup)]] * 6)


def test_only_the_best_mode_of_torch_compile_is_advised_and_only_above_the_noise() -> None:
    modes = {"default": comparison(1.5), "reduce-overhead": comparison(2.0), "max-autotune": comparison(0.9)}
    (line,) = compile_advice(modes, 0.03)
    assert line.startswith("One line of torch.compile (mode reduce-overhead)") and "2.00x" in line
    assert compile_advice({"default": comparison(1.02)}, 0.03) == compile_advice({}, 0.03) == []


def test_the_shares_of_another_path_than_the_timed_one_are_not_told_as_the_stacks() -> None:
    before = cpu_decoder()
    seen = time_shares(before, before)
    assert seen and all(each.after_us == each.before_us for each in seen)
    unseen = time_shares(before, before.model_copy(update={"other_path": True}))
    assert [(each.category, each.before_us) for each in unseen] == [(each.category, each.before_us) for each in seen]
    assert all(each.after_us is None for each in unseen) and time_shares(None, before) == []


def test_a_target_that_has_changed_or_is_gone_is_told_and_keeps_nobody_from_the_result(tmp_path: Path) -> None:
    target = write_files(tmp_path / "target", {"bench.py": "1\n"})
    known = tree_hash(target)
    assert since_it_began(target, known) == []
    (target / "bench.py").write_text("2\n")
    assert [note.startswith("The target's files have changed") for note in since_it_began(target, known)] == [True]
    target.rename(tmp_path / "elsewhere")
    (note,) = since_it_began(target, known)
    assert "is not known" in note and str(target) in note


@pytest.mark.parametrize(("step", "told"), [("compile_model", []), ("fuse_projections", ["write a line"])])
def test_a_stack_that_is_compiled_is_not_looked_at_for_a_word_on_compiling(step: str, told: list[str]) -> None:
    row = SimpleNamespace(
        attempt_id="one", step=step, key=Key("r", "p"), title="", speedup=None, verdict="kept", below=()
    )
    commit = StackCommit("0" * 40, "one", "One")
    ctx = one_context(
        stack=SimpleNamespace(top="same", base="same", commits=lambda: [commit]),
        ledger=SimpleNamespace(find=lambda name: row, stacked=lambda: ["one"]),
        config=SimpleNamespace(entry="bench.py"),
        referee=SimpleNamespace(delta=0.02),
        advice=lambda: ["write a line"],
    )
    session: Any = SimpleNamespace(compile={})
    assert _advice(ctx, session, None) == told
