"""What becomes of a commit when the stack without it is weighed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent import leave_one_out
from agent.budget import Budget
from agent.repository.stack import StackCommit
from tests.agent.one_context import ledger_of, one_context
from tests.tools.judging.compared import compared
from tools.errors import IncumbentFails
from tools.judging.measure import ComparisonRequest, Measured, enough_to_weigh
from tools.judging.verdict import Verdict
from tools.judging.worker import Build


def weighed(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *rows: tuple[str, str, tuple[str, ...]], late: bool
) -> list[str]:
    """Which of these attempts on the stack (name, verdict, what lay below) are weighed."""
    asked = list[str]()
    monkeypatch.setattr(leave_one_out, "_weigh_one", lambda ctx, commit, name: asked.append(commit.attempt_id))
    known = [{"attempt_id": name, "verdict": verdict, "below": below} for name, verdict, below in rows]
    commits = [StackCommit("0" * 40, name, name) for name, _, _ in rows]
    ctx = one_context(
        stack=SimpleNamespace(commits=lambda: list(commits)),
        ledger=ledger_of(folder, *known),
        budget=SimpleNamespace(hurried=lambda: late),
    )
    leave_one_out.weigh(ctx)
    return asked


def test_a_change_that_is_worth_nothing_is_not_measured_for_ever() -> None:
    even = [0.001, -0.001] * 15

    def late(ratios: list[float]) -> bool:
        return enough_to_weigh(0.02, lambda seconds, likely=False: True)(compared(ratios))

    def early(ratios: list[float]) -> bool:
        return enough_to_weigh(0.02, lambda seconds, likely=False: False)(compared(ratios))

    assert next(count for count in range(1, 31) if early(even[:count])) == 6, "dropped: at most so little is shown"
    wide = [0.3, -0.3] * 15
    assert [late(wide[:count]) for count in (2, 3, 5, 6)] == [False, True, False, True]
    assert not any(early(wide[:count]) for count in range(1, 30)) and early(wide)
    worth = [0.3] * 3
    assert late(worth) and early(worth), "what is plain after three restarts needs no more"


def test_what_was_timed_on_enablers_is_weighed_even_the_last_while_there_is_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = (("one", "kept", ()), ("two", "kept", ()))
    together = (("enabler", "neutral", ()), ("gain", "kept", ("enabler",)))
    assert weighed(monkeypatch, tmp_path, *alone, late=False) == ["one"]
    assert weighed(monkeypatch, tmp_path, *together, late=False) == ["enabler", "gain"]
    assert weighed(monkeypatch, tmp_path, *together, late=True) == []


def judged(compare: Callable[[ComparisonRequest], Measured]) -> Verdict:
    build = Build("smaller", Path("smaller"))
    referee = SimpleNamespace(delta=0.02, clock=SimpleNamespace(compare=compare))
    ctx = one_context(referee=referee, of=lambda commit: build, say=lambda *said: None, budget=Budget())
    return leave_one_out._judge(ctx, "audit_compute-1", "0" * 40, build)


def test_a_commit_whose_worth_cannot_be_told_stays() -> None:
    def fails(request: ComparisonRequest) -> Measured:
        raise IncumbentFails("it ended with exit status 1")

    assert (judged(fails).name, "exit status 1" in judged(fails).reason) == ("broken", True)
    for field, name in (("unsettled", "inconclusive"), ("broken", "broken"), ("refused", "refused")):
        doubted = Measured({"top": compared([0.0] * 6, **{field: "why"})})
        verdict = judged(lambda request, found=doubted: found)  # type: ignore[misc]
        assert (verdict.name, verdict.reason) == (name, "why")
