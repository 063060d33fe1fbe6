"""A run of another format is refused by what would go on with it, and can still be read and listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.reporting import report
from tests.agent.reporting.sample_report import sample
from tests.agent.whole_runs import called

RUN = {
    "format": 1,
    "created": "2026-11-28T12:00:00Z",
    "version": "0.1.0",
    "command": ["agent", "run"],
    "config": {"target": "/old/target", "entry": "bench.py", "gone": 3},
    "spent_s": 12.0,
    "gone_s": 3.0,
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """As version 0.1.0 left it: rows without keys, and fields that are gone."""
    folder = tmp_path / "runs" / "old"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(RUN))
    (folder / "ledger.jsonl").write_text('{"attempt_id": "s-1", "step": "s", "title": "A title"}\n')
    told = sample().model_dump(mode="json")
    for part in (*told["attempts"], *told["kept"]):
        part.pop("key")
        part.pop("role", None)
    (folder / "report.json").write_text(json.dumps(told | {"gone": 1}))
    return folder


def test_what_would_go_on_with_it_says_which_version_is_needed_and_the_rest_reads_it(old: Path) -> None:
    where = ("--runs-dir", str(old.parent))
    for command in ("resume", "revalidate"):
        ran = called(old, command, "old", *where)
        assert ran.status == 54 and "made by version 0.1.0 of Ratchet and needs that version" in ran.message
    found = report.read(old)
    assert f"old  finished     /old/target bench.py: {found.outcome}" in called(old, "runs", *where).output
    assert [kept.title for kept in found.kept] == [kept.title for kept in sample().kept]
    assert {attempt.key for attempt in found.attempts} == {None}
