"""What is tried next, and what of earlier attempts is used again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import climb, schedule
from agent.budget import USED_UP
from agent.builds import HANDED_ON_BYTES, Builds
from agent.records.attempts import Attempt, Attempts
from agent.state import RunState
from agent.step_names import STEPS
from agent.steps.summing_up import climbing_step
from tests.agent.one_context import ledger_of, one_context
from tests.files import write_files
from tools.candidate import Candidate, Key
from tools.isa.gate import Looked
from tools.judging.check import Checked
from tools.judging.correctness import Finding
from tools.judging.verdict import Verdict
from tools.judging.worker import Build


def builds(scratch: Path, **given: Any) -> Builds:
    made = dict.fromkeys(("config", "workload", "referee", "rules", "records", "display"))
    return Builds(scratch=scratch, **{**made, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "device", "found"),
    [((), "gfx942:sramecc+", ("gfx942",)), (("gfx950",), "gfx942", ("gfx950",)), ((), "sm_90", ()), ((), None, ())],
)
def test_architectures_are_those_asked_for_else_the_devices_own(
    asked: tuple[str, ...], device: str | None, found: tuple[str, ...], tmp_path: Path
) -> None:
    workload = SimpleNamespace(environment={"gfx": device} if device else {})
    made, nobody = builds(tmp_path, config=SimpleNamespace(arch=asked), workload=workload), one_context()
    assert made.architectures == found
    assert found or made.looked_at_kernels(nobody) == Looked(), "nothing is compiled for none"


@pytest.mark.parametrize(
    ("step", "handed_on"), [("write_kernels", True), ("compose_stack", True), ("compile_model", False)]
)
def test_what_the_stack_has_compiled_is_handed_on_but_where_compiling_is_judged(
    tmp_path: Path, step: str, handed_on: bool
) -> None:
    def materialise(diff: str, tree: Path, rules: object, on: str) -> None:
        write_files(tree, {"model.py": diff})

    cache = tmp_path / "cache"
    stack = SimpleNamespace(materialise_candidate=materialise, base="", top="top")
    made = builds(tmp_path, records=SimpleNamespace(stack=stack), _of_commits={"top": Build("top", tmp_path, cache)})
    attempt: Any = SimpleNamespace(
        id=f"{step}-1", candidate=SimpleNamespace(step=step, diff="x = 1"), base="top", below=()
    )
    for size, expected in ((1, cache if handed_on else None), (HANDED_ON_BYTES + 1, None)):
        write_files(cache, {"kernel": ""})
        os.truncate(cache / "kernel", size)
        build = made.candidate(attempt)
        assert isinstance(build, Build) and build.cache is None and build.handed_on == expected
        made.forget(attempt)


def test_what_an_earlier_command_found_right_is_not_checked_again(tmp_path: Path) -> None:
    filled = write_files(tmp_path / "filled", {"inductor/a.py": "a"})
    attempts, looked = Attempts(tmp_path / "attempts"), list[str]()
    candidate = Candidate(step="compile_model", title="", rationale="", diff="")
    attempt, draft = (Attempt(id=name, candidate=candidate, base="") for name in ("compile_model-1", "draft-1"))

    def command(verdict: Any = None) -> Builds:
        def check(build: Build) -> Checked:
            looked.append(build.key)
            return Checked(Finding(verdict, "", {"seeds": 10}), replace(build, cache=filled))

        referee = SimpleNamespace(check=check, grounds=SimpleNamespace(watch=lambda folder: folder))
        trees = {each.id: (each, Build(each.id, tmp_path)) for each in (attempt, draft)}
        records = SimpleNamespace(attempts=attempts, run_dir=tmp_path)
        return builds(tmp_path, records=records, referee=referee, _candidates=trees)

    attempts.save(attempt)
    for _ in range(2):
        command().checked(draft)
    assert looked == ["draft-1"] * 2 and not (tmp_path / "caches").exists(), "nobody comes back to a draft"
    looked.clear()
    command().checked(attempt)
    later = command()
    again = later.checked(attempt)
    assert looked == ["compile_model-1"] and again.finding == Finding(None, "", {"seeds": 10})
    assert again.build.cache is not None and (again.build.cache / "inductor" / "a.py").read_text() == "a"
    later.forget_cache(attempt)
    command("wrong").checked(attempt)
    assert looked == ["compile_model-1"] * 2, "what it has compiled is gone, and what is not right is never kept"
    command().checked(attempt)
    assert looked == ["compile_model-1"] * 3


def test_an_attempt_is_judged_by_its_own_code_whatever_had_its_id_before(tmp_path: Path) -> None:
    """What is compiled with the baseline has the id of the first attempt of its step, which another may get."""

    def materialise(diff: str, tree: Path, rules: object, on: str) -> None:
        write_files(tree, {"model.py": f"{on} {diff}"})

    def check(build: Build) -> Checked:
        return Checked(Finding(None, "", {"code": (build.tree / "model.py").read_text()}), build)

    stack = SimpleNamespace(materialise_candidate=materialise, base="", top="top")
    stack.materialise = lambda commit, tree: materialise("compiled", tree, (), commit.removeprefix("on "))
    records = SimpleNamespace(stack=stack, attempts=Attempts(tmp_path / "attempts"), run_dir=tmp_path)
    made = builds(
        tmp_path,
        records=records,
        referee=SimpleNamespace(check=check),
        _of_commits={"top": Build("top", tmp_path)},
    )
    candidate = Candidate(step="compile_model", title="", rationale="", diff="compiled")
    for base in ("original", "stack"):
        attempt = Attempt(id="compile_model-1", candidate=candidate, base=base)
        assert made.checked(attempt).finding.evidence["code"] == f"{base} compiled"
        made.adopt(attempt, f"on {base}")
        assert (made.of(f"on {base}").tree / "model.py").read_text() == f"{base} compiled"
        with pytest.raises(AssertionError, match="compile_model-1 is not what was judged"):
            made.adopt(attempt, "on another")


# -- checking


@pytest.mark.parametrize(
    ("rewriter", "verdict", "why", "found"),
    [
        ("capture", None, ["it reads"], ("broken", "its calls cannot be recorded: it reads")),
        ("capture", "wrong", ["it reads"], ("wrong", "as it was")),
        ("compile_and_capture", None, ["it reads"], ("broken", "its calls cannot be recorded: it reads")),
        ("capture", None, None, None),
        ("compile_model", None, ["it reads"], None),
    ],
)
def test_a_change_that_says_that_it_records_and_does_not_is_not_timed(
    tmp_path: Path, rewriter: str, verdict: Any, why: Any, found: Any
) -> None:
    attempt = Attempt(id="1", candidate=MINE.model_copy(update={"key": Key(rewriter, "model.py")}), base="top")
    build, seen = Build("", tmp_path), Finding(verdict, "as it was", {"not_recorded": why} if why else {})
    made = builds(
        tmp_path,
        records=SimpleNamespace(attempts=Attempts(tmp_path), run_dir=tmp_path),
        referee=SimpleNamespace(check=lambda build: Checked(seen, build)),
        _candidates={"1": (attempt, build)},
    )
    checked = made.checked(attempt).finding
    assert (checked.verdict and (checked.verdict, checked.reason)) == found and checked.evidence is seen.evidence


# -- proposing


def proposing(
    tmp_path: Path, *, hurried: bool = False, tight: bool = False, offers: tuple[Candidate, ...] = (), **gains: float
) -> Any:
    """What `propose` asks of a context; `asked` are the steps that somebody was asked about who takes time."""
    asked: list[str] = []

    def propose(step: str, below: object = (), *, looking: bool = False, **more: bool) -> tuple[list[Candidate], str]:
        if not looking:
            asked.append(step)
        return ([] if looking else list(offers)), "nothing was found"

    budget = SimpleNamespace(used_up=lambda attempts=0: "", hurried=lambda: hurried, for_compiling_s=0.0)
    budget.tight = lambda attempts: tight and attempts == len(gains or STEPS)
    budget.begin_compiling, budget.reserve = lambda: None, lambda attempts: setattr(budget, "reserved", attempts)
    return one_context(
        run_dir=tmp_path,
        ledger=ledger_of(tmp_path, {"step": "write_kernels", "verdict": "neutral"}),
        budget=budget,
        stack=SimpleNamespace(commits=list),
        propose=propose,
        asked=asked,
        config=SimpleNamespace(steps=STEPS, attempts=12),
        attempts=Attempts(tmp_path / "attempts"),
        base=lambda below=(): "top",
        expecting=lambda steps: {step: gains.get(step, 1.0) for step in steps if step in (gains or steps)},
        progress=SimpleNamespace(emit=lambda event: None),
    )


MINE = Candidate(step="write_kernels", title="mine", rationale="", diff="diff --git a/a b/a\n")


def test_in_a_hurry_nobody_is_asked_who_takes_time(tmp_path: Path) -> None:
    ctx = proposing(tmp_path, hurried=True, offers=(MINE,))
    found = climb.propose({"step": "write_kernels"}, ctx)
    assert (found["no_more"], ctx.asked) == ("what is left of the time budget is kept for the steps after it", [])
    ctx = proposing(tmp_path, offers=(MINE,))
    assert climb.propose({"step": "write_kernels"}, ctx)["attempt"] == "write_kernels-2" and ctx.asked


@pytest.mark.parametrize(("base", "attempt"), [("original", "write_kernels-2"), ("top", "")])
def test_in_a_hurry_a_step_has_one_attempt_on_what_others_have_kept_since(
    tmp_path: Path, base: str, attempt: str
) -> None:
    ctx = proposing(tmp_path, hurried=True, offers=(MINE,))
    earlier = {"step": "write_kernels", "verdict": "broken", "base": base}
    ctx.ledger = ledger_of(tmp_path, earlier, {"step": "audit_compute"})
    assert climb.propose({"step": "write_kernels"}, ctx)["attempt"] == attempt


@pytest.mark.parametrize(
    ("tight", "gains", "first"),
    [
        (True, {"write_kernels": 1.03, "fuse_projections": 1.02, "swap_attention": 1.08}, "swap_attention"),
        (False, {"write_kernels": 1.03, "swap_attention": 1.08}, ""),
        (True, {"write_kernels": 1.08, "swap_attention": 1.08}, ""),
        (True, {"write_kernels": 1.03, "compile_model": 2.0}, ""),
    ],
)
def test_where_time_is_short_what_promises_most_comes_first(
    tmp_path: Path, tight: bool, gains: dict[str, float], first: str
) -> None:
    ctx = proposing(tmp_path, tight=tight, offers=(MINE,), **gains)
    found = climb.propose({"step": "write_kernels"}, ctx)
    assert (found.get("goto", ""), found["attempt"]) == (first, "" if first else "write_kernels-2")
    if not first:
        return
    events = list[Any]()
    ctx.progress = SimpleNamespace(emit=events.append)
    state: RunState = {"step": "write_kernels", **found}  # type: ignore[typeddict-item]
    left = climbing_step(state, ctx, "write_kernels")
    assert not left["climbing"] and "results" not in left and first in schedule.ways("write_kernels")
    assert events[0].words()[0] == "there may not be time for all that is left: first swap_attention promises 1.08×"


@pytest.mark.parametrize(("for_compiling_s", "reserved"), [(0.0, 9), (60.0, 5)])
def test_time_that_is_kept_for_compiling_is_not_reserved_once_more(
    tmp_path: Path, for_compiling_s: float, reserved: int
) -> None:
    ctx = proposing(tmp_path)
    ctx.budget.for_compiling_s = for_compiling_s
    climb.propose({"step": "write_kernels"}, ctx)
    assert ctx.budget.reserved == reserved


@pytest.mark.parametrize(("on_stack", "below"), [(True, ()), (False, ("audit_compute-1",))])
def test_where_nothing_can_be_made_on_the_stack_it_is_made_on_what_enables_it(
    tmp_path: Path, on_stack: bool, below: tuple[str, ...]
) -> None:
    enabler = MINE.model_copy(update={"step": "audit_compute", "enables": "capture_graph"})
    ctx = proposing(tmp_path)
    ctx.propose = lambda step, below=(), **how: ([MINE] if below or on_stack else [], "it reads values")
    ctx.attempts.save(Attempt(id="audit_compute-1", candidate=enabler, base="top"))
    ctx.base, ctx.change_of = lambda below=(): "+".join(("top", *below)), lambda name: name
    ctx.stack = SimpleNamespace(top="top", build=lambda changes, on: "new", commits=list)
    if not on_stack:
        assert climb.propose({"step": "capture_graph"}, ctx)["no_more"] == "it reads values"
    found = climb.propose({"step": "capture_graph", "shadow": ["audit_compute-1"]}, ctx)
    made = ctx.attempts.load(found["attempt"])
    assert (made.below, made.base) == (below, "+".join(("top", *below)))


def test_an_attempt_that_was_saved_and_not_judged_is_the_next_commands_first(tmp_path: Path) -> None:
    climb.propose({"step": "write_kernels"}, proposing(tmp_path, offers=(MINE,)))
    later = proposing(tmp_path)
    assert climb.propose({"step": "write_kernels"}, later)["attempt"] == "write_kernels-2" and not later.asked
    assert later.attempts.load("write_kernels-2").candidate == MINE
    other = proposing(tmp_path)
    other.base = lambda below=(): "another top"
    assert climb.propose({"step": "write_kernels"}, other)["no_more"] == "nothing was found"


def test_what_was_decided_with_the_baseline_is_taken_when_the_time_is_up(tmp_path: Path) -> None:
    ctx, first = proposing(tmp_path), MINE.model_copy(update={"step": "compile_model"})
    ctx.budget.used_up = lambda attempts=0: USED_UP
    ctx.attempts.save(Attempt(id="compile_model-1", candidate=first, base="top"))
    assert climb.propose({"step": "compile_model"}, ctx)["no_more"] == USED_UP
    assert climb.is_likely(ctx, "compile_model") and not climb.is_likely(ctx, "capture_graph")
    ctx.attempts.save_verdict("compile_model-1", Verdict(name="neutral", reason=""))
    assert climb.is_decided(ctx, "compile_model") and not climb.is_likely(ctx, "compile_model")
    ctx.attempts.save_verdict("compile_model-1", Verdict(name="kept", reason=""))
    assert climb.is_likely(ctx, "compile_model")
    assert climb.is_decided(ctx, "compile_model") and not climb.is_decided(ctx, "write_kernels")
    assert climb.propose({"step": "compile_model"}, ctx)["attempt"] == "compile_model-1"
    ctx.base = lambda below=(): "another top"
    assert not climb.is_decided(ctx, "compile_model"), "something was kept before it"


def test_what_was_found_of_another_attempt_of_that_name_is_forgotten(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    first = Attempt(id="s-1", candidate=MINE, base="top")
    attempts.save(first)
    attempts.save_verdict("s-1", Verdict(name="kept", reason=""))
    attempts.save_check("s-1", {})
    attempts.save(first)
    assert attempts.verdict("s-1") is not None and attempts.check("s-1") is not None
    attempts.save(first.model_copy(update={"base": "another top"}))
    assert attempts.verdict("s-1") is None and attempts.check("s-1") is None
