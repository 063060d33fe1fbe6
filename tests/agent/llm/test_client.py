"""What an endpoint sends becomes a turn; what may pass is asked again, and what will not is an error at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.llm import ContextFull, KeyRefused, ModelError, ModelUnknown, ModelUnreachable, ToolCall, Usage
from agent.llm.client import RETRIES, Client, Endpoint
from tests.agent.llm.scripted import HEAD, Reply, Server, calls, fails, says, serving

TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "diff", "parameters": {"type": "object"}}}]
ASKED = [{"role": "user", "content": "faster?"}]


@contextlib.contextmanager
def asking(*replies: Reply) -> Iterator[tuple[Client, Server, list[float]]]:
    """A client that waits no longer than it says, its server, and how long it would have waited."""
    waited: list[float] = []
    with (
        serving(*replies) as server,
        contextlib.closing(Client(Endpoint(server.base_url, "scripted", "the-key"), sleep=waited.append)) as client,
    ):
        yield client, server, waited


def test_text_and_usage_are_put_together_and_what_was_asked_is_sent() -> None:
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    with asking(says("héllo", usage=usage, reasoning_content="hm")) as (client, server, waited):  # type: ignore[arg-type]
        turn = client.ask(ASKED, TOOLS, most_tokens=99)
    assert (turn.text, turn.finish, turn.reasoning, turn.calls) == ("héllo", "stop", "hm", [])
    assert turn.usage == Usage(prompt=12, completion=5, cached=8) and waited == []
    (sent,) = server.requests
    assert sent["messages"] == ASKED and sent["tools"] == TOOLS and sent["max_completion_tokens"] == 99
    assert server.keys == ["Bearer the-key"] and "the-key" not in repr(client.endpoint)


def test_calls_of_tools_side_by_side_are_put_together() -> None:
    with asking(calls(("read_file", '{"path": "a.py"}'), ("diff", "{}"))) as (client, _, _):
        turn = client.ask(ASKED, TOOLS)
    assert turn.calls == [ToolCall(id="id0", name="read_file", arguments='{"path": "a.py"}'),
                          ToolCall(id="id1", name="diff", arguments="{}")]  # fmt: skip
    assert turn.usage == Usage(), "not told is not nought"
    assert turn.as_message()["tool_calls"][0]["function"] == {"name": "read_file", "arguments": '{"path": "a.py"}'}


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    def part(**told: Any) -> dict[str, Any]:
        return {**HEAD, "choices": [{"index": 0, "delta": {"tool_calls": [told]}, "finish_reason": None}]}

    chunks = [part(id="a", function={"name": "diff", "arguments": ""}), part(function={"arguments": "{}"}),
              part(id="b", function={"name": "verify", "arguments": "{}"}),
              {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "function_call"}]}]  # fmt: skip
    with asking(Reply(chunks=chunks)) as (client, _, _):
        turn = client.ask(ASKED, TOOLS)
    assert [(c.id, c.name, c.arguments) for c in turn.calls] == [("a", "diff", "{}"), ("b", "verify", "{}")]
    assert turn.finish == "tool_calls"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_an_answer_that_was_cut_or_withheld_says_so(finish: str) -> None:
    with asking(says("half", finish)) as (client, _, _):
        assert client.ask(ASKED, TOOLS).finish == finish


@pytest.mark.parametrize(
    "trouble",
    [
        fails(500), fails(503), fails(429), fails(408), replace(says("ha"), drops=True),
        Reply(chunks=says("ha").chunks[:2]), Reply(chunks=["{broken"]), Reply(200, {"hello": "world"}),
        Reply(chunks=['{"error": {"message": "overloaded"}}']),
    ],
    ids=["500", "503", "429", "408", "dropped", "broken off", "no JSON", "no stream", "error in the stream"],
)  # fmt: skip
def test_what_may_pass_is_asked_again(trouble: Reply) -> None:
    with asking(trouble, says("ok")) as (client, server, waited):
        assert client.ask(ASKED, TOOLS).text == "ok"
    assert len(server.requests) == 2 and len(waited) == 1 and 0.5 < waited[0] < 2.0


def test_it_waits_as_long_as_it_is_asked_to_and_no_longer_than_it_has_patience() -> None:
    with asking(fails(429, retry_after="7"), says("ok")) as (client, _, waited):
        assert client.ask(ASKED, TOOLS).text == "ok"
    assert waited == [7.0]
    with asking(fails(429, retry_after="86400")) as (client, server, waited), pytest.raises(ModelUnreachable):
        client.ask(ASKED, TOOLS)
    assert waited == [] and len(server.requests) == 1


def test_after_some_tries_it_gives_up_and_says_what_it_met() -> None:
    with asking(*[fails(500, "on fire")] * 9) as (client, server, waited), pytest.raises(ModelUnreachable) as caught:
        client.ask(ASKED, TOOLS)
    assert "on fire" in caught.value.message and len(server.requests) == RETRIES + 1
    assert waited == sorted(waited) and sum(waited) < 60


@pytest.mark.parametrize(
    ("reply", "error", "told"),
    [
        (fails(401, "bad key"), KeyRefused, "bad key"), (fails(401, "not the-key"), KeyRefused, "not [key]"),
        (Reply(chunks=["<html>"], headers={"content-type": "text/html; charset=utf-8"}), ModelUnreachable, "HTML"),
        (fails(403), KeyRefused, "refuses the key"),
        (fails(404, "no such model"), ModelUnknown, "no such model"),
        (fails(429, "pay", "insufficient_quota"), KeyRefused, "no quota"),
        (fails(400, "This model's maximum context length is 10"), ContextFull, "cannot read that much"),
        (fails(400, "x", "context_length_exceeded"), ContextFull, "cannot read that much"),
        (fails(422, "tools[0] is odd"), ModelError, "tools[0] is odd"),
    ],
)  # fmt: skip
def test_what_will_not_pass_is_an_error_at_once(reply: Reply, error: type[ModelError], told: str) -> None:
    with asking(reply) as (client, server, waited), pytest.raises(error) as caught:
        client.ask(ASKED, TOOLS)
    assert told in caught.value.message and len(server.requests) == 1 and waited == []
    assert "the-key" not in f"{caught.value.message} {caught.value.hint}"


def test_a_flood_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.llm.client.LONGEST_ANSWER", 100)
    with asking(says("x" * 100_000)) as (client, _, waited):
        turn = client.ask(ASKED, TOOLS)
    assert (len(turn.text), turn.finish, waited) == (101, "length", [])


def test_an_endpoint_that_is_not_there_is_said_to_be() -> None:
    client = Client(Endpoint("http://127.0.0.1:9/v1", "scripted"), sleep=lambda seconds: None)
    with contextlib.closing(client), pytest.raises(ModelUnreachable, match=r"127\.0\.0\.1:9"):
        client.ask(ASKED, TOOLS)


def test_an_older_server_gets_the_limit_under_its_older_name() -> None:
    refusal = fails(400, "Unsupported parameter: max_completion_tokens")
    with asking(refusal, says("ok"), says("again")) as (client, server, _):
        assert [client.ask(ASKED, TOOLS, 5).text for _ in range(2)] == ["ok", "again"]
    assert ["max_tokens" in sent for sent in server.requests] == [False, True, True]
