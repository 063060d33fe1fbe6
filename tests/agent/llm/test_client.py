"""What an endpoint sends becomes a turn; what may pass is asked again, and what will not is an error at once."""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.llm import (
    BudgetReached,
    ContextFull,
    KeyRefused,
    ModelError,
    ModelRefused,
    ModelUnknown,
    ModelUnreachable,
    ToolCall,
    Turn,
    Usage,
)
from agent.llm.client import LATER_RETRIES, RETRIES, Client
from tests.agent.llm.scripted import Reply, Server, calls, fails, part, says, serving, took

TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "diff", "parameters": {"type": "object"}}}]
ASKED = [{"role": "user", "content": "faster?"}]


@contextlib.contextmanager
def asking(*replies: Reply, **more: Any) -> Iterator[tuple[Client, Server, list[float]]]:
    """A client that does not wait, its server, and how long it would have waited."""
    waited: list[float] = []
    more = {"key": "the-key", "sleep": waited.append, **more}
    with serving(*replies) as server, contextlib.closing(Client("scripted", server.base_url, **more)) as client:
        yield client, server, waited


def test_text_and_usage_are_put_together_and_what_was_asked_is_sent() -> None:
    usage = took(12, 5, prompt_tokens_details={"cached_tokens": 8})
    with asking(says("héllo", usage=usage, reasoning_content="hm")) as (client, server, waited):
        turn = client.ask(ASKED, TOOLS)
    assert (turn.text, turn.finish, turn.reasoning, turn.calls) == ("héllo", "stop", "hm", [])
    assert turn.usage == Usage(prompt=12, completion=5, cached=8) and waited == []
    (sent,) = server.requests
    assert sent["messages"] == ASKED and sent["tools"] == TOOLS
    assert server.keys == ["Bearer the-key"]


def test_calls_of_tools_side_by_side_are_put_together() -> None:
    with asking(calls(("read_file", '{"path": "a.py"}'), ("diff", "{}"))) as (client, _, _):
        turn = client.ask(ASKED, TOOLS)
    assert turn.calls == [
        ToolCall(id="id0", name="read_file", arguments='{"path": "a.py"}'),
        ToolCall(id="id1", name="diff", arguments="{}"),
    ]
    assert turn.usage == Usage(), "not told is not nought"
    assert turn.as_message()["tool_calls"][0]["function"] == {"name": "read_file", "arguments": '{"path": "a.py"}'}


@pytest.mark.parametrize("index", [{}, {"index": 0}], ids=["without", "always 0"])
def test_calls_without_an_index_of_their_own_are_told_apart_by_their_ids(index: dict[str, int]) -> None:
    def called(**told: Any) -> dict[str, Any]:
        return part({"tool_calls": [told | index]})

    chunks = [
        called(id="a", function={"name": "diff", "arguments": ""}),
        called(function={"arguments": "{}"}),
        called(id="b", function={"name": "verify", "arguments": "{}"}),
        part({}, "function_call"),
    ]
    with asking(Reply(chunks=chunks)) as (client, _, _):
        turn = client.ask(ASKED, TOOLS)
    assert [(c.id, c.name, c.arguments) for c in turn.calls] == [("a", "diff", "{}"), ("b", "verify", "{}")]
    assert turn.finish == "tool_calls"


@pytest.mark.parametrize(
    "trouble",
    [
        fails(500),
        fails(503),
        fails(429),
        fails(408),
        replace(says("ha"), drops=True),
        Reply(chunks=says("ha").chunks[:2]),
        Reply(chunks=["{broken"]),
        Reply(200, {"hello": "world"}),
        Reply(chunks=['{"error": {"message": "overloaded"}}']),
    ],
    ids=["500", "503", "429", "408", "dropped", "broken off", "no JSON", "no stream", "error in the stream"],
)
def test_what_may_pass_is_asked_again(trouble: Reply) -> None:
    with asking(trouble, says("ok")) as (client, server, waited):
        assert client.ask(ASKED, TOOLS).text == "ok"
    assert len(server.requests) == 2 and len(waited) == 1 and 0.5 < waited[0] < 2.0


def test_it_waits_as_long_as_it_is_asked_to_and_no_longer_than_it_has_patience_or_the_run_has_time() -> None:
    with asking(fails(429, retry_after="7"), says("ok")) as (client, _, waited):
        assert client.ask(ASKED, TOOLS).text == "ok"
    assert waited == [7.0]
    with asking(fails(429, retry_after="86400")) as (client, server, waited), pytest.raises(ModelUnreachable):
        client.ask(ASKED, TOOLS)
    assert waited == [] and len(server.requests) == 1
    for trouble in (fails(429, retry_after="7"), fails(500)):
        soon = {"deadline": time.monotonic() + 0.5}
        with asking(trouble, **soon) as (client, _, waited), pytest.raises(BudgetReached, match="no time"):
            client.ask(ASKED, TOOLS)
        assert waited == []


def test_after_some_tries_it_gives_up_and_later_of_what_has_answered_before() -> None:
    with asking(*[fails(500, "on fire")] * 9) as (client, server, waited), pytest.raises(ModelUnreachable) as caught:
        client.ask(ASKED, TOOLS)
    assert "on fire" in caught.value.message and len(server.requests) == RETRIES + 1
    assert waited == sorted(waited) and sum(waited) < 60
    with asking(says("ok"), *[fails(503)] * 9) as (client, server, waited):
        client.ask(ASKED, TOOLS)
        with pytest.raises(ModelUnreachable):
            client.ask(ASKED, TOOLS)
    assert len(server.requests) == 1 + LATER_RETRIES + 1 and sum(waited) > 60
    nowhere = Client("scripted", "http://127.0.0.1:9/v1", sleep=waited.append)
    with contextlib.closing(nowhere), pytest.raises(ModelUnreachable, match=r"127\.0\.0\.1:9"):
        nowhere.ask(ASKED, TOOLS)


@pytest.mark.parametrize(
    ("reply", "error", "told"),
    [
        (fails(401, "bad key"), KeyRefused, "bad key"),
        (fails(401, "not the-key"), KeyRefused, "not [key]"),
        (Reply(chunks=["<html>"], headers={"content-type": "text/html; charset=utf-8"}), ModelUnreachable, "HTML"),
        (fails(403), KeyRefused, "refuses the key"),
        (fails(404, "no such model"), ModelUnknown, "no such model"),
        (fails(429, "pay", "insufficient_quota"), KeyRefused, "no quota"),
        (fails(400, "This model's maximum context length is 10"), ContextFull, "cannot read that much"),
        (fails(400, "x", "context_length_exceeded"), ContextFull, "cannot read that much"),
        (fails(400, "request (9 tokens) exceeds the available context size (4 tokens)"), ContextFull, "cannot read"),
        (fails(500, "Context size has been exceeded."), ContextFull, "cannot read that much"),
        (fails(400, "prompt is too long: 9 tokens > 4 maximum"), ContextFull, "cannot read that much"),
        (fails(422, "tools[0] is odd"), ModelRefused, "tools[0] is odd"),
        (fails(400, "no tools here"), ModelRefused, "no tools here"),
        (fails(501, "no tools here"), ModelRefused, "no tools here"),
    ],
)
def test_what_will_not_pass_is_an_error_at_once(reply: Reply, error: type[ModelError], told: str) -> None:
    with asking(reply) as (client, server, waited), pytest.raises(error) as caught:
        client.ask(ASKED, TOOLS)
    assert told in caught.value.message and len(server.requests) == 1 and waited == []
    shown = "".join(traceback.format_exception(caught.value))
    assert "the-key" not in f"{caught.value.message} {caught.value.hint} {shown}"


@pytest.mark.parametrize("key", ["sk-secret\r", "sk-secret\n", "sk-secrét", "sk-secret\x7f"])
@pytest.mark.guard("model key")
def test_a_key_that_is_none_is_refused_before_it_is_sent_and_is_not_shown(key: str) -> None:
    with pytest.raises(KeyRefused) as caught:
        Client("scripted", "http://127.0.0.1:9/v1", key)
    assert "secr" not in f"{caught.value} {caught.value.hint} {''.join(traceback.format_exception(caught.value))}"


@pytest.mark.guard("model key")
def test_a_key_that_comes_back_escaped_is_not_shown_either() -> None:
    key = 'sk-\\back"slash'
    for shown in (repr(key), json.dumps(key)):
        with asking(fails(400, f"got {shown}"), key=key) as (client, _, _), pytest.raises(ModelRefused) as caught:
            client.ask(ASKED, ())
        assert "slash" not in caught.value.message and "[key]" in caught.value.message


def test_thoughts_that_stand_in_the_text_are_not_part_of_it() -> None:
    said = '{"say": "a</think>b"}'
    for text in (f"<think>I could {{}}.\n</think>\n\n{said}", f"I could {{}}.\n</think>\n{said}"):
        with asking(says(text, reasoning_content="hm")) as (client, _, _):
            turn = client.ask(ASKED, ())
        assert (turn.text, turn.reasoning) == (said, "hm\nI could {}.")
    with asking(says("<think>I could", "length"), says(said)) as (client, _, _):
        turn = client.ask(ASKED, ())
        assert (turn.text, turn.reasoning, turn.as_message()["content"]) == ("", "I could", "(no answer)")
        assert client.ask(ASKED, ()).text == said


def test_a_refusal_and_a_withheld_answer_are_told_as_such() -> None:
    with asking(says("half", "content_filter")) as (client, _, _):
        assert client.ask(ASKED, TOOLS).finish == "content_filter"
    told: list[str] = []
    chunks = [part({"refusal": "I will not "}), part({"refusal": "do this."}), part({}, "stop")]
    with asking(Reply(chunks=chunks), told=told.append) as (client, _, _):
        turn = client.ask(ASKED, TOOLS)
    assert (turn.text, turn.finish) == ("I will not do this.", "content_filter")
    assert told == ["the model refuses: I will not do this."]


def test_halves_of_a_character_are_put_together_and_a_half_alone_can_be_sent_back() -> None:
    halves = [part({"content": "@"}), part({"content": "%"}), part({"content": "@"}), part({}, "stop")]
    chunks = [json.dumps(each).replace("@", "\\ud83d").replace("%", "\\ude00") for each in halves]
    with asking(Reply(chunks=chunks), says("ok")) as (client, server, waited):
        turn = client.ask(ASKED, ())
        assert turn.text == "😀\ufffd"
        assert client.ask([*ASKED, turn.as_message(), {"role": "user", "content": "\ud83d"}], ()).text == "ok"
    assert waited == [] and server.requests[1]["messages"][-1]["content"] == "\ufffd"


@pytest.mark.parametrize(
    ("arguments", "echoed"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("[1]", {}),
        ("null", {}),
        ('"s"', {}),
        ("NaN", {"not_json": "NaN"}),
        ('{"a": NaN}', {"not_json": '{"a": NaN}'}),
        ("{", {"not_json": "{"}),
    ],
)
def test_what_a_model_called_is_told_again_as_an_object(arguments: str, echoed: object) -> None:
    turn = Turn(calls=[ToolCall(id="a", name="diff", arguments=arguments)])
    assert json.loads(turn.as_message()["tool_calls"][0]["function"]["arguments"]) == echoed


def test_an_answer_that_comes_late_is_heard_and_one_that_comes_too_late_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with asking(replace(says("ok"), after_s=0.3)) as (client, _, waited):
        assert (client.ask(ASKED, TOOLS).text, waited) == ("ok", [])
    monkeypatch.setattr("agent.llm.client.ANSWER_S", 0.2)
    with asking(replace(says("late"), after_s=1.0), says("ok")) as (client, _, waited):
        turn = client.ask(ASKED, TOOLS)
        assert (turn.text, len(waited)) == ("ok", 1)
    late = [replace(says("late"), after_s=0.5)] * (RETRIES + 1)
    with asking(*late) as (client, server, _), pytest.raises(ModelUnreachable, match="does not answer"):
        client.ask(ASKED, TOOLS)
    assert len(server.requests) == RETRIES + 1


def test_signs_of_life_are_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    with asking(replace(says("ok"), pings_s=0.2)) as (client, _, _):
        assert client.ask(ASKED, TOOLS).text == "ok"
    with asking(replace(says("ok"), pings_s=9.0), deadline=time.monotonic() + 0.3) as (client, _, waited):
        assert (client.ask(ASKED, TOOLS).finish, waited) == ("length", []), "the run has no time for more"
    monkeypatch.setattr("agent.llm.client.LONGEST_ANSWER_S", 0.3)
    with asking(replace(says("ok"), pings_s=9.0)) as (client, _, waited), pytest.raises(ModelUnreachable, match="said"):
        client.ask(ASKED, TOOLS)
    assert waited == [] and time.monotonic() - begun < 6


def test_a_flood_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.llm.client.LONGEST_ANSWER", 100)
    with asking(says("x" * 100_000)) as (client, _, waited):
        turn = client.ask(ASKED, TOOLS)
    assert (len(turn.text), turn.finish, waited) == (101, "length", [])
    names = [part({"tool_calls": [{"index": 0, "id": "i" * 9, "function": {"name": "n" * 9}}]})] * 99
    for flood in (Reply(chunks=names), Reply(chunks=["y" * 9999])):
        with asking(flood) as (client, _, waited):
            turn = client.ask(ASKED, TOOLS)
        assert (turn.finish, waited) == ("length", []) and len(turn.model_dump_json()) < 500
