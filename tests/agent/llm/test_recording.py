"""A recording answers by conversation, as it was made: in pieces, or cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import RunDamaged
from agent.llm import NotRecorded, ToolCall, Turn
from agent.llm.recording import ConversationLog, RecordedTurns


def turn(*names: str) -> Turn:
    return Turn(calls=[ToolCall(id=name, name=name, arguments="{}") for name in names])


def row(step: str, before: int, *names: str) -> str:
    told = {"step": step, "before": before, "messages": [], "turn": turn(*names).model_dump(mode="json")}
    return json.dumps(told) + "\n"


def recorded(tmp_path: Path, *rows: str) -> RecordedTurns:
    file = tmp_path / "exchanges.jsonl"
    file.write_text("".join(rows))
    return RecordedTurns.read(file)


def said(found: RecordedTurns, name: str) -> list[str]:
    chat, names = found.chat(name), []
    with pytest.raises(NotRecorded):
        while True:
            names.append(chat.ask([], ()).calls[0].name)
    return names


def test_conversations_are_kept_apart(tmp_path: Path) -> None:
    found = recorded(tmp_path, row("a", 0, "one"), row("a:review", 0, "no"), row("a", 2, "give_up"))
    assert (said(found, "a"), said(found, "a:review"), said(found, "b")) == (["one", "give_up"], ["no"], [])


def test_what_was_cut_off_and_begun_again_is_said_once(tmp_path: Path) -> None:
    rows = [
        row("a", 0, "edit"),
        row("a", 2, "submit"),
        row("a", 4, "other"),
        row("a", 0, "more"),
        row("a", 2, "give_up"),
    ]
    assert said(recorded(tmp_path, *rows), "a") == ["edit", "submit", "reset", "more", "give_up"]
    assert said(recorded(tmp_path, row("a", 0, "edit"), row("a", 0, "another")), "a") == ["reset", "another"]


def test_a_line_that_was_not_ended_costs_no_other(tmp_path: Path) -> None:
    file = tmp_path / "exchanges.jsonl"
    file.write_text(row("a", 0, "edit") + row("a", 2, "torn")[:40])
    for name in ("again", "submit"):
        ConversationLog(file, "a", [{"role": "user", "content": "now"}] * 3, 2).add(turn(name))
    found = RecordedTurns.read(tmp_path)
    assert (said(found, "a"), found.torn) == (["edit", "again", "submit"], 1)


@pytest.mark.parametrize("text", ["{}\n", row("a", 0, "edit")[:40], None], ids=["no row", "no line", "no file"])
def test_what_is_no_recording_is_said(tmp_path: Path, text: str | None) -> None:
    with pytest.raises(RunDamaged):
        RecordedTurns.read(tmp_path / "none") if text is None else recorded(tmp_path, text)
