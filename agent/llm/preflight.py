"""Try a model before anything is measured: it answers, and calls a tool or fills in a record.

What that costs is charged like anything else. Where a limit is reached nobody is asked.
"""

from __future__ import annotations

from pydantic import BaseModel

from agent.llm import BudgetReached, Chat, Message, ModelError, ModelWithoutTools
from agent.llm.account import Account
from agent.llm.opinions import Heard, ask_for
from tools.registry import Request, Tool

PURPOSE = "preflight"


class Ready(Request):
    """Say that you are ready."""


class Opinion(BaseModel):
    """Whether you are ready."""

    ready: bool


READY = Tool("ready", Ready)


def calls_tools(chat: Chat, account: Account, heard: Heard) -> None:
    """Ask for one call of a tool. Raises: ModelError, ModelWithoutTools."""
    messages: list[Message] = [{"role": "user", "content": "Call the tool `ready` now. Say nothing else."}]
    try:
        turn = account.ask(PURPOSE, chat, messages, [READY.as_function()]).turn
    except BudgetReached:
        return
    heard(messages, turn)
    if [call.name for call in turn.calls] != ["ready"]:
        raise ModelWithoutTools(
            "The model was offered a tool and asked to call it, and did not.",
            hint="Take a model that calls tools, and a server that is started with tool calls on.",
        )


def fills_in(chat: Chat, account: Account, name: str, heard: Heard) -> None:
    """Ask for one record, as a reviewer is asked. Raises: ModelError."""
    messages: list[Message] = [{"role": "user", "content": "Say that you are ready."}]
    if ask_for(Opinion, chat, account, PURPOSE, messages, heard) is None and not account.reached():
        raise ModelError(
            f"{name} was asked for one record, and gave none of the form.",
            hint="Take a model that can answer with a JSON object.",
        )
