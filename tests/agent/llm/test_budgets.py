"""Conversations over HTTP end before a limit is passed, however the endpoint counts, whatever breaks, and in time."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from agent.llm.account import Account, Price
from agent.llm.client import Client, Endpoint
from agent.llm.conversation import Conversation
from tests.agent.llm.scripted import Reply, Server, calls, says, serving
from tests.agent.llm.test_conversation import Bench, Echo, echo
from tools.registry import Registry, Tool


def asks(characters_a_token: float, most: int = 300, text: str = "12.5 ") -> Reply:
    """A call whose answer the conversation has to carry on."""
    reply = calls(("echo", json.dumps({"text": text * 300})))
    return replace(reply, characters_a_token=characters_a_token, most=most)


def talking(server: Server, account: Account, **more: Any) -> Conversation:
    messages = [{"role": "system", "content": "be right"}, {"role": "user", "content": "the step " * 500}]
    client = Client(Endpoint(server.base_url, "scripted", "k"), sleep=lambda seconds: None, **more)
    return Conversation(client, Registry([Tool("echo", Echo, echo)]), Bench(), account, "s", messages)


def run(talk: Conversation) -> None:
    with contextlib.closing(talk.chat):  # type: ignore[type-var]
        assert talk.next_candidate() is None


@pytest.mark.parametrize("characters_a_token", [1.0, 2.0, 3.5, 6.0])
@pytest.mark.parametrize("most", [300, 10**9], ids=["short answers", "the longest answers"])
def test_a_limit_of_tokens_is_not_passed_however_the_endpoint_counts(characters_a_token: float, most: int) -> None:
    account = Account(tokens=60_000)
    with serving(*[asks(characters_a_token, most, f"{number}, ") for number in range(99)]) as server:
        talk = talking(server, account)
        run(talk)
    assert "the budget of 60000 tokens" in talk.ended and account.spent.untold == 0
    assert account.spent.tokens <= 60_000 and len(server.requests) == account.spent.requests
    if most == 300:  # what is left is less than the last request, with what came to it, may take
        assert len(server.requests) >= 5 and account.spent.tokens + len(json.dumps(talk.messages)) > 45_000


def test_a_limit_of_dollars_is_not_passed_either() -> None:
    account = Account(dollars=0.5, price=Price(prompt=2.0, completion=10.0))
    with serving(*[asks(1.5, 4000, f"{number}, ") for number in range(99)]) as server:
        talk = talking(server, account)
        run(talk)
    assert "the budget of 0.50 dollars" in talk.ended and 0.3 < (account.spent.dollars or 0.0) <= 0.5


def test_several_beside_each_other_do_not_pass_it_together() -> None:
    account = Account(tokens=100_000, askers=3)
    with serving(*[asks(1.0, 5000, f"{number}, ") for number in range(99)]) as server:
        talks = [talking(server, account) for _ in range(3)]
        threads = [threading.Thread(target=run, args=(talk,)) for talk in talks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert all("the budget of 100000 tokens" in talk.ended for talk in talks)
    assert 60_000 < account.spent.tokens <= 100_000


def test_answers_that_break_off_are_paid_for_and_held_to_the_limit() -> None:
    usage = {"prompt_tokens": 3000, "completion_tokens": 5, "total_tokens": 3005}
    dropped = replace(says("x" * 400), drops=True)
    account = Account()
    with serving(dropped, dropped, *[says("I talk.", usage=usage)] * 3) as server:
        talk = talking(server, account)
        run(talk)
    assert account.spent.requests == len(server.requests) == 5
    prompt = len(json.dumps([server.requests[0]["messages"], server.requests[0]["tools"]])) / 2
    assert account.spent.tokens == pytest.approx(3 * 3005 + 2 * (prompt + 200), rel=0.01)
    assert account.spent.guessed == account.spent.tokens - 3 * 3005 and account.spent.untold == 2
    account = Account(tokens=25_000)
    with serving(*[dropped] * 9) as server:
        talk = talking(server, account)
        run(talk)
    assert "broke off" in talk.ended and 1 <= len(server.requests) < 5
    assert account.spent.requests == len(server.requests) and account.spent.tokens <= 25_000


def test_a_model_is_waited_for_no_longer_than_the_run_has_time() -> None:
    begun = time.monotonic()
    ends = begun + 0.5
    with serving(replace(says("late"), pings_s=30.0)) as server:
        talk = talking(server, Account(), left_s=lambda: ends - time.monotonic())
        talk.over = lambda: "the time budget was used up" if time.monotonic() >= ends else ""
        run(talk)
    assert talk.ended == "the time budget was used up" and time.monotonic() - begun < 5
    assert len(server.requests) == 1
