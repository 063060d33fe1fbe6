"""Ask a model for one record: the reviewer, who may only reject a candidate, and the test whether a model answers.

A reviewer has no say in a verdict: what it lets pass is judged like anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from agent.llm import BudgetReached, Chat, Message, ModelError
from agent.llm.account import Account
from agent.skill_packs import Packs
from tools.candidate import Candidate
from tools.registry import cut
from tools.registry.marks import marked

REPAIRS = 2  # requests to answer in the form that was asked for
LONGEST_DIFF = 60_000
Form = TypeVar("Form", bound=BaseModel)
_DECODER = json.JSONDecoder(strict=False)


class Review(BaseModel):
    """What a reviewer thinks of a change."""

    reject: bool
    reason: str = Field(max_length=2000)


@dataclass(frozen=True)
class Reviewer:
    """`told` hears of a reviewer that did not answer: no objection does not mean that it looked."""

    chat: Chat
    account: Account
    packs: Packs
    told: Callable[[str], None] = lambda said: None

    def objection(self, candidate: Candidate) -> str:
        """Why it rejects a candidate; empty when it does not, or cannot be asked."""
        asked = f"The change is meant to make the repository faster, in the step `{candidate.step}`."
        diff = marked("data", cut(f"{candidate.title}\n\n{candidate.rationale}\n\n{candidate.diff}", LONGEST_DIFF))
        messages: list[Message] = [
            {"role": "system", "content": self.packs.get("ratchet").section("Reviewing a candidate")},
            {"role": "user", "content": f"{asked}\n\n{diff}"},
        ]
        try:
            found = ask_for(Review, self.chat, self.account, f"{candidate.step}:review", messages)
        except ModelError as error:
            self.told(f"the reviewer cannot be asked: {error.message}")
            return ""
        if found is None:
            self.told(f"the reviewer gave no answer of use on: {candidate.title}")
        return (found.reason or "it gives no reason") if found is not None and found.reject else ""


def ask_for(form: type[Form], chat: Chat, account: Account, name: str, messages: Sequence[Message]) -> Form | None:
    """A record in JSON; None where the model does not answer in that form, or a limit is reached. `name` is for the
    account. Raises: ModelError.
    """
    how = f"Answer with one JSON object of this form and nothing else: {json.dumps(form.model_json_schema())}"
    said = [{**messages[0], "content": f"{messages[0]['content']}\n\n{how}"}, *messages[1:]]
    for _ in range(1 + REPAIRS):
        try:
            turn = account.ask(name, chat, said).turn
        except BudgetReached:
            return None
        # models put words or marks around what they were asked for, and think aloud before it
        objects = [turn.text[begin:end] for begin, end, _ in objects_in(turn.text)]
        try:
            return form.model_validate_json(objects[-1] if objects else turn.text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            again = f"That is not of the form: {first['msg']}. Answer with the JSON object alone."
            said += [turn.as_message(), {"role": "user", "content": again}]
    return None


def objects_in(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Where each JSON object in a text begins and ends, and what it is; not those inside of others."""
    at = text.find("{")
    while at >= 0:
        try:
            found, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield at, end, found
        at = text.find("{", end)
