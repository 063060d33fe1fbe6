"""What becomes of a commit when the stack without it is weighed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent import leave_one_out
from tools.errors import IncumbentFails
from tools.judging.measure import Measured, Request
from tools.judging.worker import Build


def test_a_commit_without_which_the_stack_ends_while_it_is_timed_stays() -> None:
    class Fails:
        def compare(self, request: Request) -> Measured:
            raise IncumbentFails("it ended with exit status 1")

    build = Build("smaller", Path("smaller"))
    referee = SimpleNamespace(delta=0.02, clock=Fails())
    ctx: Any = SimpleNamespace(referee=referee, build_of=lambda commit: build, say=lambda *said: None)
    verdict = leave_one_out._judge(ctx, "audit_compute-1", "0" * 40, build)
    assert (verdict.name, "exit status 1" in verdict.reason) == ("broken", True)
