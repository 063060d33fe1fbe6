"""What is asked aside comes as a record, or is asked for again; prices are known or said to be unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from agent.llm import Message, ModelUnknown, Turn, Usage, prices
from agent.llm.account import Account, Price
from agent.llm.asking import REPAIRS, ask_for
from agent.llm.opinions import Reviewer, not_worth_it
from agent.skill_packs import Packs
from tools.candidate import Candidate


class Form(BaseModel):
    yes: bool


class Says:
    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[list[Message]] = []

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], most_tokens: int | None = None) -> Turn:
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
    assert ask_for(Form, Says(text), account, "aside", ASK) == Form(yes=True)
    assert account.by_step["aside"].tokens == 15


def test_what_is_no_record_is_asked_for_again_and_then_given_up() -> None:
    chat = Says("yes", "{}", '{"yes": true}')
    assert ask_for(Form, chat, Account(), "aside", ASK) == Form(yes=True)
    assert "not of the form" in chat.asked[1][-1]["content"] and len(chat.asked[2]) == 6
    assert '"yes"' in chat.asked[0][0]["content"] and ASK[0]["content"] == "Say."
    assert ask_for(Form, Says(*["no"] * (1 + REPAIRS)), Account(), "aside", ASK) is None


def test_who_may_not_spend_is_not_asked() -> None:
    assert ask_for(Form, Says(), Account(tokens=10), "aside", ASK) is None


def test_prices_are_those_of_the_longest_name_and_of_no_later_version() -> None:
    assert prices.of("claude-opus-4-5-20251101") == Price(prompt=5, completion=25, cached=0.5)
    assert prices.of("anthropic/claude-opus-4-5") == prices.of("claude-opus-4-5")
    small, large = prices.of("gpt-5.4-mini"), prices.of("gpt-5.4")
    assert small is not None and large is not None and small.prompt < large.prompt
    assert prices.of("gpt-5.9") is None and prices.of("gpt-55") is None and prices.of("a-model") is None
    assert Price.of_numbers((1.0, 2.0)) == Price(prompt=1, completion=2)


def test_two_models_share_an_account_at_their_own_prices() -> None:
    account = Account(dollars=1.0, price=Price(prompt=1.0, completion=1.0))
    cheap = account.at(Price(prompt=0.1, completion=0.1))
    account.add("a", Usage(prompt=100_000, completion=0), 0.0)
    cheap.add("b", Usage(prompt=100_000, completion=0), 0.0)
    assert account.spent.dollars == pytest.approx(0.11) and cheap.spent is account.spent
    with pytest.raises(ValueError, match="price"):
        account.at(None)


class Fails:
    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], most_tokens: int | None = None) -> Turn:
        raise ModelUnknown("never heard of it")


def test_who_gives_an_opinion_and_fails_is_told_and_does_no_harm() -> None:
    told, packs = list[str](), Packs.of()
    change = Candidate(step="s", title="one", rationale="two", diff="three")
    heard = lambda messages, turn: None  # noqa: E731
    assert Reviewer(Fails(), Account(), packs, heard, told.append).objection(change) == ""
    assert Reviewer(Says("no", "no", "no"), Account(), packs, heard, told.append).objection(change) == ""
    assert "never heard of it" in told[0] and "no answer of use" in told[1]
    rejects = Says('{"reject": true, "reason": ""}')
    assert Reviewer(rejects, Account(), packs, heard).objection(change) == "it gives no reason"
    assert "three" in rejects.asked[0][1]["content"] and "<data>" in rejects.asked[0][1]["content"]
    assert not_worth_it(Fails(), Account(), ASK, heard, told.append) == ""
    assert not_worth_it(Says("no", "no", "no"), Account(), ASK, heard, told.append) == ""
    assert "never heard of it" in told[2] and "no answer of use" in told[3]
    assert not_worth_it(Says('{"worth_trying": false, "reason": ""}'), Account(), ASK, heard) == "no reason given"


def test_who_asks_side_by_side_shares_what_is_left() -> None:
    alone, three = Account(tokens=9000), Account(tokens=9000, askers=3)
    assert (alone.most_tokens(1000), three.most_tokens(1000)) == (8000, 2000)
    assert three.reached(2800) and not alone.reached(2800)
