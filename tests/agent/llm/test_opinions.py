"""What is asked aside comes as a record, or is asked for again."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from agent.llm import Message, ModelUnknown, Turn, Usage
from agent.llm.account import Account
from agent.llm.opinions import REPAIRS, Reviewer, ask_for
from agent.skill_packs import Packs
from tests.agent.llm.scripted import Turns
from tools.candidate import Candidate


class Form(BaseModel):
    yes: bool


def says(*texts: str) -> Turns:
    return Turns([Turn(text=text, usage=Usage(prompt=10, completion=5)) for text in texts])


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
    assert ask_for(Form, says(text), account, "of:aside", ASK) == Form(yes=True)
    assert account.spending.by_step["aside"].tokens == 15


def test_what_is_no_record_is_asked_for_again_and_then_given_up_and_who_may_not_spend_is_not_asked() -> None:
    chat = says("yes", "{}", '{"yes": true}')
    assert ask_for(Form, chat, Account(), "aside", ASK) == Form(yes=True)
    assert "not of the form" in chat.asked[1][-1]["content"] and len(chat.asked[2]) == 6
    assert '"yes"' in chat.asked[0][0]["content"] and ASK[0]["content"] == "Say."
    never = says("no")
    assert ask_for(Form, never, Account(), "aside", ASK) is None and len(never.asked) == 1 + REPAIRS
    assert ask_for(Form, never, Account(tokens=0), "aside", ASK) is None and len(never.asked) == 1 + REPAIRS


def test_who_gives_an_opinion_and_fails_is_told_and_does_no_harm() -> None:
    told, packs = list[str](), Packs.of()
    change = Candidate(step="s", title="one", rationale="two", diff="three")
    fails = Turns([ModelUnknown("never heard of it")])
    assert Reviewer(fails, Account(), packs, told.append).objection(change) == ""
    assert Reviewer(says("no"), Account(), packs, told.append).objection(change) == ""
    assert "never heard of it" in told[0] and "no answer of use" in told[1]
    rejects = says('{"reject": true, "reason": ""}')
    assert Reviewer(rejects, Account(), packs).objection(change) == "it gives no reason"
    assert "three" in rejects.asked[0][1]["content"] and "<data>" in rejects.asked[0][1]["content"]
