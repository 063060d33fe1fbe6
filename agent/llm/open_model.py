"""Put a run's model together: the endpoint is tried, what it spends is counted and kept, what is said is recorded."""

from __future__ import annotations

import os

from agent.context import RunContext
from agent.llm import Chat, ModelError, ModelWithoutTools
from agent.llm import account as accounts
from agent.llm.account import Account
from agent.llm.conversation import Conversation
from agent.llm.prompt import opening
from agent.llm.recording import Recording
from agent.llm.talk import Talk
from agent.proposers.model import Model
from agent.reporting.progress import Note
from agent.workbench import REGISTRY, Workbench
from tools.registry import Registry, Request, Result, Tool
from tools.registry.files import Text

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
EXCHANGES = "exchanges.jsonl"


def open_model(ctx: RunContext) -> Model:
    """The model that `ctx.config` names, after it has shown that it answers and calls tools. Raises: ModelError."""
    assert ctx.config.model is not None
    try:
        from agent.llm.client import Client, Endpoint
    except ModuleNotFoundError as error:
        raise ModelError(f"A model needs the package {error.name}, which is not installed.",
                         hint="Install `ratchet-agent[llm]` beside Ratchet.") from error  # fmt: skip
    url = ctx.config.base_url or os.environ.get(URL_VARIABLE)
    client = Client(Endpoint(url, ctx.config.model, os.environ.get(KEY_VARIABLE, "")),
                    told=lambda said: ctx.progress.emit(Note(said)))  # fmt: skip
    account = accounts.opened(ctx.run_dir, ctx.config.tokens)
    preflight(client, account)

    def begin(step: str) -> Talk:
        bench = Workbench.open(ctx, step, step)
        heard = Recording(ctx.run_dir / EXCHANGES, step).add
        return Talk(Conversation(client, REGISTRY, bench, account, step, opening(ctx, step), heard), bench)

    return Model(begin)


class Ready(Request):
    """Say that you are ready."""


def _ready(session: object, request: Ready) -> Result:
    return Text(said="ready")


def preflight(chat: Chat, account: Account) -> None:
    """Ask for one call of a tool. Raises: ModelError, ModelWithoutTools."""
    tools = Registry([Tool("ready", Ready, _ready)])
    messages = [{"role": "user", "content": "Call the tool `ready` now. Say nothing else."}]
    turn = chat.ask(messages, tools.as_functions())
    account.add("preflight", turn.usage, 0.0)
    if [call.name for call in turn.calls] != ["ready"]:
        raise ModelWithoutTools(
            "The model was offered a tool and asked to call it, and did not.",
            hint="Take a model that calls tools, and a server that is started with tool calls on.",
        )
