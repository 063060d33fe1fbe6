"""What stands in for a run: a `RunContext` of what a test gives it, and a real ledger with a few rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent.records.ledger import Ledger, NewRow
from tools.candidate import Key


def one_context(**given: Any) -> Any:
    """One object is all owners, and has only what is given."""
    ctx = SimpleNamespace(**given)
    ctx.builds = ctx.records = ctx.proposals = ctx.display = ctx
    return ctx


def ledger_of(folder: Path, *rows: dict[str, Any]) -> Ledger:
    """A new ledger of these rows, in which nothing but what is given counts."""
    (folder / "ledger.jsonl").unlink(missing_ok=True)
    ledger = Ledger.open(folder / "ledger.jsonl")
    unsaid = {"step": "s", "verdict": "kept", "title": "", "key": Key("rewriter", "place"), "time": datetime.now(UTC)}
    for number, row in enumerate(rows, 1):
        ledger.append(NewRow.model_validate({"attempt_id": f"{row.get('step', 's')}-{number}", **unsaid, **row}))
    return ledger
