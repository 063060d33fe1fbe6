"""Try a model before anything is measured: it answers, and calls a tool or fills in a record.

What that costs is booked like anything else, and where nothing may be spent any more nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel

from agent.llm import BudgetReached, Chat, Message, ModelError, ModelWithoutTools, Turn
from agent.llm.account import Account
from agent.llm.asking import ask_for
from agent.llm.paying import Payer
from tools.registry import Registry, Request, Result, Tool
from tools.registry.files import Text

PURPOSE = "preflight"
Heard = Callable[[Sequence[Message], Turn], None]


class Ready(Request):
    """Say that you are ready."""


class Opinion(BaseModel):
    """Whether you are ready."""

    ready: bool


def _ready(session: object, request: Ready) -> Result:
    return Text(said="ready")


def calls_tools(chat: Chat, account: Account, heard: Heard) -> None:
    """Ask for one call of a tool; one that may not be asked any more will not be either. Raises: ModelError,
    ModelWithoutTools.
    """
    tools = Registry([Tool("ready", Ready, _ready)])
    messages: list[Message] = [{"role": "user", "content": "Call the tool `ready` now. Say nothing else."}]
    try:
        turn, _tokens = Payer(chat, account, PURPOSE).ask(messages, tools.as_functions())
    except BudgetReached:
        return
    heard(messages, turn)
    if [call.name for call in turn.calls] != ["ready"]:
        raise ModelWithoutTools(
            "The model was offered a tool and asked to call it, and did not.",
            hint="Take a model that calls tools, and a server that is started with tool calls on.",
        )


def fills_in(chat: Chat, account: Account, name: str, heard: Heard) -> None:
    """Ask for one record, as who gives opinions is asked. Raises: ModelError."""
    messages: list[Message] = [{"role": "user", "content": "Say that you are ready."}]
    if ask_for(Opinion, chat, account, PURPOSE, messages, heard) is None and not account.reached():
        raise ModelError(
            f"{name} was asked for one record, and gave none of the form.",
            hint="Take a model that can answer with a JSON object.",
        )
