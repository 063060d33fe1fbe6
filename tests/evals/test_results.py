"""Rows are appended and never lost, and the page shows the newest of each task and machine."""

from __future__ import annotations

import gzip
import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evals import cli, results
from evals.results import Evidence, Result
from tests.agent.reporting.sample_report import interval

DATE = datetime(2026, 12, 2, 3, 4, 5, tzinfo=UTC)


def row(**changes: Any) -> Result:
    given: dict[str, Any] = {
        "date": DATE,
        "task": "one",
        "device": "A CPU, 2 cores",
        "commit": "0123456",
        "command": "evals run one",
        "outcome": "1 change kept",
        "kept": ["fuse | gate"],
        "speedup": interval(1.32, 1.28, 1.37),
        "minutes": 6.5,
        "fingerprint": "0" * 16,
        "samples": "samples/one.json.gz",
    }
    return Result(**(given | changes))


def test_rows_are_read_as_they_were_written_and_the_page_follows(tmp_path: Path) -> None:
    written = [row(), row(task="two", samples="", outcome="ended with exit status 64", kept=[], speedup=None)]
    for each in written:
        results.append(tmp_path, each)
    assert results.read(tmp_path) == written
    stored = (tmp_path / results.PAGE).read_text()
    assert stored == results.page(written)
    assert "| one | 1.32× (1.28 to 1.37) | not measured | fuse \\| gate | 6 min 30 s | 2026-12-02 | 0123456 |" in stored
    assert "| two |" not in stored  # it has no report


def test_the_page_shows_the_newest_row_of_each_task_and_machine() -> None:
    later = DATE.replace(day=3)
    told = results.page([row(date=later, commit="new"), row(commit="old"), row(device="A GPU", commit="gpu")])
    assert ("| new |" in told, "| old |" in told, "| gpu |" in told) == (True, False, True)
    assert told.index("## A CPU, 2 cores") < told.index("## A GPU")


def test_samples_are_not_written_over_those_of_another_run(tmp_path: Path) -> None:
    name = results.write_samples(tmp_path, DATE, "unchanged/t5", {"a": 1})
    assert name == "samples/20261202-030405-unchanged-t5.json.gz"
    assert json.loads(gzip.decompress((tmp_path / name).read_bytes())) == {"a": 1}
    with pytest.raises(FileExistsError):
        results.write_samples(tmp_path, DATE, "unchanged/t5", {})
    assert cli.main(["results", "--results-dir", str(tmp_path)]) == 2, "there are no rows"


class Counted(Evidence):
    topic = "counts"
    title = "Counted"
    count: int = 0

    def body(self) -> str:
        return f"{self.count} in {results.ROOT}/evals"


def test_evidence_is_a_page_and_its_numbers_and_is_written_again_as_it_grows(tmp_path: Path) -> None:
    found = Counted(date=DATE, command=["evals", "count"])
    for found.count in (1, 2):
        page = found.write(tmp_path)
    assert page == tmp_path / "evidence" / "counts" / "20261202-030405.md"
    assert page.read_text().startswith("# Counted\n\nMeasured 2026-12-02 on ")
    assert page.read_text().endswith("Command: `evals count`.\n2 in ./evals\n")
    packed = page.with_suffix(".json.gz").read_bytes()
    kept = Counted.model_validate_json(gzip.decompress(packed))
    assert (kept.count, kept.date, kept.command) == (2, DATE, found.command)


def test_the_commit_says_where_code_was_changed_and_results_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], capture_output=True, text=True
        ).stdout

    (tmp_path / "evals" / "results").mkdir(parents=True)
    rows, code = tmp_path / "evals" / "results" / "results.jsonl", tmp_path / "code.py"
    rows.touch()
    code.touch()
    git("init"), git("add", "."), git("commit", "-m", "one")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    rows.write_text("a row")
    assert results.commit() == git("rev-parse", "HEAD")[:7]
    code.write_text("changed")
    assert results.commit() == git("rev-parse", "HEAD")[:7] + "+"


@pytest.mark.parametrize(
    ("home", "shown"), [("/home/me", '"~", ~/x, ~. /home/menu /home/me-too /home/me.old'), ("/", None)]
)
def test_a_home_is_not_named_and_nothing_else_is_changed(
    home: str, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    told = '"/home/me", /home/me/x, /home/me. /home/menu /home/me-too /home/me.old'
    assert results.portable(told) == (shown or told)


def test_the_stored_page_is_the_one_of_the_stored_rows() -> None:
    folder = results.ROOT / "evals" / "results"
    rows = results.read(folder)
    assert (folder / results.PAGE).read_text() == results.page(rows), "run `evals results`"
    assert [each.samples for each in rows if each.samples and not (folder / each.samples).is_file()] == []
