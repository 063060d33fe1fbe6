"""What is asked aside comes as a record, or is asked for again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from agent.llm import Message, ModelUnknown, Turn, Usage
from agent.llm.account import Account
from agent.llm.opinions import REPAIRS, Reviewer, ask_for
from agent.skill_packs import Packs
from tools.candidate import Candidate


def nobody(messages: Sequence[Message], turn: Turn) -> None:
    """Records nothing."""


class Form(BaseModel):
    yes: bool


class Says:
    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[list[Message]] = []

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        assert not tools
        self.asked.append(json.loads(json.dumps(list(messages))))
        return Turn(text=self.texts.pop(0), usage=Usage(prompt=10, completion=5))


ASK: list[Message] = [{"role": "system", "content": "Say."}, {"role": "user", "content": "Now."}]


@pytest.mark.parametrize(
    "text",
    [
        '{"yes": true}',
        'Well:\n```json\n{"yes": true}\n```\nas asked',
        ' {"yes": 1} ',
        'It is {no}, I thought of {"yes": false} first. {"yes": true}',
    ],
)
def test_a_record_is_found_in_what_is_said(text: str) -> None:
    account = Account()
    assert ask_for(Form, Says(text), account, "aside", ASK, nobody) == Form(yes=True)
    assert account.by_step["aside"].tokens == 15


def test_what_is_no_record_is_asked_for_again_and_then_given_up() -> None:
    chat = Says("yes", "{}", '{"yes": true}')
    assert ask_for(Form, chat, Account(), "aside", ASK, nobody) == Form(yes=True)
    assert "not of the form" in chat.asked[1][-1]["content"] and len(chat.asked[2]) == 6
    assert '"yes"' in chat.asked[0][0]["content"] and ASK[0]["content"] == "Say."
    assert ask_for(Form, Says(*["no"] * (1 + REPAIRS)), Account(), "aside", ASK, nobody) is None


def test_who_may_not_spend_is_not_asked() -> None:
    assert ask_for(Form, Says(), Account(tokens=0), "aside", ASK, nobody) is None


class Fails:
    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        raise ModelUnknown("never heard of it")


def test_who_gives_an_opinion_and_fails_is_told_and_does_no_harm() -> None:
    told, packs = list[str](), Packs.of()
    change = Candidate(step="s", title="one", rationale="two", diff="three")
    assert Reviewer(Fails(), Account(), packs, nobody, told.append).objection(change) == ""
    assert Reviewer(Says("no", "no", "no"), Account(), packs, nobody, told.append).objection(change) == ""
    assert "never heard of it" in told[0] and "no answer of use" in told[1]
    rejects = Says('{"reject": true, "reason": ""}')
    assert Reviewer(rejects, Account(), packs, nobody).objection(change) == "it gives no reason"
    assert "three" in rejects.asked[0][1]["content"] and "<data>" in rejects.asked[0][1]["content"]
