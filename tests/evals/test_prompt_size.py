"""Prompts are counted by step from a recording, those of reviewers left out."""

from __future__ import annotations

from evals.prompt_size import sizes


def test_each_conversation_is_counted_with_what_was_said_before() -> None:
    def row(step: str, messages: list[str], answer: str) -> dict[str, object]:
        return {"step": step, "messages": [{"content": text} for text in messages], "turn": {"text": answer}}

    rows = [
        row("a", ["r" * 100, "t" * 50], "x" * 10),
        row("a:review", ["z", "z"], "no"),
        row("a", ["u" * 200], "y"),
        row("b", ["r" * 100, "t" * 70], "x"),
    ]
    found = sizes(rows, tools=1000)
    assert [(size.step, size.rules, size.task, size.requests) for size in found] == [
        ("a", 100, 50, 2),
        ("b", 100, 70, 1),
    ]
    assert 1350 < found[0].largest < 1500 and found[1].largest < 1300
