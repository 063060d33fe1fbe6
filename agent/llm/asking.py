"""Ask a model for one record: its answer is JSON of a given form, and is asked for again where it is not.

For questions aside, without tools. What it says is an opinion; who asks decides what it may do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from agent.llm import BudgetReached, Chat, Message, Turn
from agent.llm.account import Account
from agent.llm.objects import objects_in
from agent.llm.paying import Payer

REPAIRS = 2
Form = TypeVar("Form", bound=BaseModel)


def ask_for(
    form: type[Form],
    chat: Chat,
    account: Account,
    purpose: str,
    messages: Sequence[Message],
    heard: Callable[[Sequence[Message], Turn], None] = lambda messages, turn: None,
) -> Form | None:
    """None where the model does not answer in that form, or may not be asked. `purpose` is who is charged. Raises:
    ModelError.
    """
    said = [*messages]
    said[0] = {
        **said[0],
        "content": f"{said[0]['content']}\n\nAnswer with one JSON object of this form and nothing "
        f"else: {json.dumps(form.model_json_schema())}",
    }
    payer = Payer(chat, account, purpose)
    for _ in range(1 + REPAIRS):
        try:
            turn, _tokens = payer.ask(said)
        except BudgetReached:
            return None
        heard(said, turn)
        try:
            return form.model_validate_json(_object_in(turn.text))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            said += [
                turn.as_message(),
                {
                    "role": "user",
                    "content": f"That is not of the form: {first['msg']}. Answer with the JSON object alone.",
                },
            ]
    return None


def _object_in(text: str) -> str:
    """The last one: models put words or marks around what they were asked for, and think aloud before it."""
    found = [text[begin:end] for begin, end, _ in objects_in(text)]
    return found[-1] if found else text
