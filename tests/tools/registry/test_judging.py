"""What the referee says of a draft is told in words, as a hint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import pytest

from tools.judging.accept import speedup_interval
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.registry import Registry
from tools.registry import judging as judging_tools
from tools.registry.judging import Tried


@dataclass
class Session:
    finding: Finding = field(default_factory=lambda: Finding(None, ""))
    comparison: Comparison | None = None
    tried: Sequence[Tried] = ()
    noise_floor: float = 0.02

    def verify(self) -> Finding:
        return self.finding

    def measure(self) -> Comparison:
        assert self.comparison is not None
        return self.comparison

    def attempts(self) -> Sequence[Tried]:
        return self.tried


def said(session: Any, name: str, **arguments: Any) -> str:
    answer = Registry(judging_tools.TOOLS).call(session, name, arguments)
    assert answer.worked, answer.text
    return answer.text


@pytest.mark.parametrize(
    ("finding", "wanted"),
    [
        (
            Finding(None, "", {"checked": ["first call", "unseen shape"]}),
            "right: it passes the whole check (first call, u",
        ),
        (Finding("wrong", "case 1 differs"), "wrong: case 1 differs\nNothing like"),
    ],
)
def test_verify(finding: Finding, wanted: str) -> None:
    assert said(Session(finding), "verify").startswith(wanted)


def test_measure() -> None:
    row = {"purpose": "quick look", "incumbent": "a", "candidate": "b"}
    found = Comparison(
        **row, incumbent_us=[[10.0, 40.0]] * 3, candidate_us=[[5.0, 40.0]] * 3, case_log_ratios=[[log(2), 0.0]] * 3
    )
    assert said(Session(comparison=found), "measure") == (
        "1.414x (1.414 to 1.414, 3 restarts) over the top of the stack (case 1: 10.0 us, with your candidate 5.0 us; "
        "case 2: 40.0 us, with your candidate 40.0 us); below 2.0% a gain cannot be shown"
    )
    assert "it cannot be timed: it ended" in said(Session(comparison=Comparison(**row, broken="it ended")), "measure")


def test_the_ledger_is_shown_from_its_end() -> None:
    assert said(Session(), "show_ledger") == "nothing was tried yet"
    speedup = speedup_interval([log(1.1)] * 6, 0.02)
    rows = [Tried(step="s", title=f"t{n}", verdict="kept", reason="good.", speedup=speedup) for n in range(50)]
    rows += [Tried(step="other", title="last", verdict="wrong", reason="it differs.")]
    told = said(Session(tried=rows), "show_ledger")
    assert "11 before these" in told and told.endswith("- other: last: wrong. it differs.")
    assert "- s: t49: kept, 1.100x (1.100 to 1.100, 6 restarts). good." in told
    assert said(Session(tried=rows), "show_ledger", step="other").count("\n") == 0
