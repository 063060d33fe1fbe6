"""Where a run left off is read from its checkpoint, and a damaged one is told as such."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent import cli, graph
from agent.errors import RunDamaged
from agent.step_names import STEPS

CONTEXT: Any = None  # nothing is walked


def test_the_graph_can_be_printed_with_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["graph"]) == 0
    told = capsys.readouterr().out
    assert [name for name in STEPS if name not in told] == []


def made(path: Path) -> bytes:
    """A checkpoint of a run that has not begun."""
    with graph._checkpointer(path) as saver:
        saver.setup()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    return path.read_bytes()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "no database": lambda whole: b"something else\n" * 1000,
    "no tables where they were": lambda whole: whole[:100] + b"\xff" * (len(whole) - 100),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_with_what_to_do(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.sqlite"
    path.write_bytes(DAMAGE[damage](made(path)))
    with pytest.raises(RunDamaged, match=r"checkpoint\.sqlite is damaged") as caught:
        graph.walk(CONTEXT, path)
    assert "Remove it and resume" in caught.value.hint


def test_what_else_goes_wrong_with_a_checkpoint_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError), graph._checkpointer(tmp_path / "checkpoint.sqlite"):
        raise sqlite3.OperationalError("database is locked")
