"""A row that was acknowledged is never lost; what was changed afterwards is noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.records.ledger import FIRST, Ledger, LedgerCorrupt, NewRow
from sandbox.errors import DiskFull

ROOT = Path(__file__).parents[3]


def row(attempt_id: str, **more: object) -> NewRow:
    values: dict[str, object] = {
        "attempt_id": attempt_id,
        "time": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
        "step": "fuse_projections",
        "key": ("projections", "model.py:Größe", "q,k,v"),
        "title": "Fuse Q, K and V — größer",
        "verdict": "neutral",
        "diff_digest": "0123456789abcdef",
    }
    return NewRow.model_validate(values | more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def test_rows_are_read_as_they_were_written_one_line_each_chained(path: Path) -> None:
    ledger = Ledger.open(path)
    written = [
        ledger.append(row("a", evidence={"x": 1.5, "y": [1, "zwei", None, True]}, cost={"wall_s": 3})),
        ledger.append(row("b", stack=["b"], verdict="kept", predicted_gain=1)),
    ]
    again = Ledger.open(path)
    assert list(again.rows) == written == list(Ledger.read(path))
    assert [found.seq for found in again.rows] == [0, 1]
    assert [found.prev for found in again.rows] == [FIRST, written[0].hash]
    lines = path.read_text().splitlines()
    assert [json.loads(line)["attempt_id"] for line in lines] == ["a", "b"]
    again.append(row("c"))
    assert path.read_text().splitlines()[:2] == lines
    assert Ledger.open(path).find("b") == written[1]
    assert Ledger.open(path).find("d") is None


@pytest.mark.parametrize(
    "strange",
    [
        {"evidence": {"error": float("nan"), "deep": [{"x": float("-inf")}]}},
        {"title": "line\nbreak\r\u2028\u0085\x00\ud800", "key": ("a", "\ud800\n", ""), "rationale": "\udcff"},
        {"evidence": {"text": "\ud800", "large": 10**30, "small": 5e-324, "long": 0.1 + 0.2}},
        {"time": datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))},
        {"evidence": {"tuple": (1, 2), "1": {"2": {}}}, "predicted_gain": 1.0000000000000002},
    ],
)
def test_strange_values_survive_or_become_words(path: Path, strange: dict[str, object]) -> None:
    written = Ledger.open(path).append(row("a", **strange))
    assert Ledger.open(path).rows == (written,)
    assert len(path.read_bytes().splitlines()) == 1


def test_what_is_no_value_of_json_is_a_fault_of_the_caller(path: Path) -> None:
    for wrong in (object(), b"bytes", {1, 2}):
        with pytest.raises(ValidationError, match="no JSON value"):
            row("a", evidence={"x": wrong})
    with pytest.raises(ValidationError):
        row("a", time=datetime(2026, 1, 1))
    with pytest.raises(ValidationError):
        row("no such/name")


def test_an_attempt_has_one_row_and_saying_it_again_changes_nothing(path: Path) -> None:
    ledger = Ledger.open(path)
    first = ledger.append(row("a"))
    later = row("a", time=datetime(2027, 1, 1, tzinfo=UTC), cost={"wall_s": 9})
    before = path.read_bytes()
    assert ledger.append(later) == first
    with pytest.raises(ValueError, match="something else"):
        ledger.append(row("a", verdict="kept"))
    assert path.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 10, 200, -2])
def test_an_unfinished_last_line_is_set_aside_and_the_rest_goes_on(path: Path, cut: int) -> None:
    ledger = Ledger.open(path)
    ledger.append(row("a"))
    whole = path.read_bytes()
    ledger.append(row("b"))
    torn = path.read_bytes()[len(whole) :][:cut]
    path.write_bytes(whole + torn)
    assert [found.attempt_id for found in Ledger.read(path)] == ["a"]
    assert path.read_bytes() == whole + torn
    again = Ledger.open(path)
    assert [found.attempt_id for found in again.rows] == ["a"]
    assert path.read_bytes() == whole
    assert (path.parent / "ledger.jsonl.torn").read_bytes() == torn + b"\n"
    again.append(row("b"))
    assert [found.attempt_id for found in Ledger.open(path).rows] == ["a", "b"]


def filled(path: Path) -> Ledger:
    ledger = Ledger.open(path)
    for name in "abc":
        ledger.append(row(name))
    return ledger


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "a verdict is changed": (lambda rows: [rows[0], rows[1].replace(b"neutral", b"slower "), rows[2]], 1),
    "a blank is added": (lambda rows: [rows[0], rows[1].replace(b",", b", ", 1), rows[2]], 1),
    "a row is removed": (lambda rows: [rows[0], rows[2]], 1),
    "the first row is removed": (lambda rows: rows[1:], 0),
    "rows change places": (lambda rows: [rows[0], rows[2], rows[1]], 1),
    "a row is there twice": (lambda rows: [rows[0], rows[1], rows[1], rows[2]], 2),
    "a row is garbage": (lambda rows: [rows[0], b"\0" * 80 + b"\n", rows[2]], 1),
    "the last row is garbage": (lambda rows: [*rows[:2], rows[2][:-20] + b"\n"], 2),
    "an empty line": (lambda rows: [rows[0], b"\n", *rows[1:]], 1),
    "an unknown field": (lambda rows: [rows[0].replace(b"{", b'{"more":1,', 1), *rows[1:]], 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_is_named_and_nothing_is_changed(path: Path, damage: str) -> None:
    filled(path)
    change, number = DAMAGE[damage]
    edit(path, change)
    before = path.read_bytes()
    for look in (Ledger.open, Ledger.read):
        with pytest.raises(LedgerCorrupt, match=rf"Row {number} \(line {number + 1}\)"):
            look(path)
    assert path.read_bytes() == before


def test_a_row_written_again_with_a_fitting_hash_breaks_the_chain_after_it(path: Path) -> None:
    ledger = filled(path)
    forged = ledger.rows[1].model_copy(update={"verdict": "kept"})
    forged = forged.model_copy(update={"hash": forged.computed_hash()})
    edit(path, lambda rows: [rows[0], forged.line(), rows[2]])
    with pytest.raises(LedgerCorrupt, match="Row 2"):
        Ledger.open(path)


def test_a_full_disk_leaves_every_row_that_was_there(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.append(row("a"))
    whole = path.read_bytes()
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 100:
            return write(descriptor, bytes(data)[:100])
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(DiskFull):
        patch.setattr(os, "write", full)
        ledger.append(row("b"))
    assert path.read_bytes() == whole
    ledger.append(row("b"))
    assert [found.attempt_id for found in Ledger.open(path).rows] == ["a", "b"]


WRITER = """
import sys
from pathlib import Path
from agent.records.ledger import Ledger
from tests.agent.records.test_ledger import row
ledger = Ledger.open(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    ledger.append(row(f"a{len(ledger.rows)}", title="x" * 3000))
    print(len(ledger.rows) - 1, flush=True)
"""


def test_a_row_that_was_acknowledged_survives_being_killed(path: Path) -> None:
    acknowledged = -1
    command = [sys.executable, "-c", WRITER, str(path)]
    for _ in range(6):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for _ in range(5):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().splitlines()
        acknowledged = int(rest[-1]) if rest else acknowledged
        assert len(Ledger.open(path).rows) > acknowledged
    assert acknowledged >= 29
