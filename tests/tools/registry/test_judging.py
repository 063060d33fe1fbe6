"""What the referee says of a draft is told in words, as a hint."""

from __future__ import annotations

from math import log
from types import SimpleNamespace
from typing import Any

from tools.judging.accept import speedup_interval
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.registry import Registry
from tools.registry import judging as judging_tools
from tools.registry.judging import Tried


def said(name: str, answer: Any = None, **arguments: Any) -> str:
    """Of the tool, where the session's method gives this."""
    methods = {each: lambda: answer for each in ("verify", "measure", "attempts")}
    called = Registry(judging_tools.TOOLS).call(SimpleNamespace(noise_floor=0.02, **methods), name, arguments)
    assert called.worked, called.text
    return called.text


def test_verify() -> None:
    right, wrong = Finding(None, "", {"checked": ["first call", "unseen shape"]}), Finding("wrong", "case 1 differs")
    assert said("verify", right).startswith("right: it passes the whole check (first call, unseen shape)")
    assert said("verify", wrong).startswith("wrong: case 1 differs\nNothing like")


def test_measure() -> None:
    row = {"purpose": "quick look", "incumbent": "a", "candidate": "b"}
    found = Comparison(
        **row, incumbent_us=[[10.0, 40.0]] * 3, candidate_us=[[5.0, 40.0]] * 3, case_log_ratios=[[log(2), 0.0]] * 3
    )
    assert said("measure", found) == (
        "1.414x (1.414 to 1.414, 3 restarts) over the top of the stack (case 1: 10.0 us, with your candidate 5.0 us; "
        "case 2: 40.0 us, with your candidate 40.0 us); below 2.0% a gain cannot be shown"
    )
    assert "it cannot be timed: it ended" in said("measure", Comparison(**row, broken="it ended"))


def test_the_ledger_is_shown_from_its_end() -> None:
    assert said("show_ledger", []) == "nothing was tried yet"
    speedup = speedup_interval([log(1.1)] * 6, 0.02)
    rows = [Tried(step="s", title=f"t{n}", verdict="kept", reason="good.", speedup=speedup) for n in range(50)]
    rows += [Tried(step="other", title="last", verdict="wrong", reason="it differs.")]
    told = said("show_ledger", rows)
    assert "11 before these" in told and told.endswith("- other: last: wrong. it differs.")
    assert "- s: t49: kept, 1.100x (1.100 to 1.100, 6 restarts). good." in told
    assert said("show_ledger", rows, step="other").count("\n") == 0
