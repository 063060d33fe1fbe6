"""Put a run's models together: endpoints are tried, what they spend is counted and kept, what is said is recorded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agent.context import RunContext
from agent.llm import (
    Chat,
    KeyRefused,
    Message,
    ModelError,
    ModelUnreachable,
    ModelWithoutTools,
    Turn,
    opinions,
    prices,
)
from agent.llm import account as accounts
from agent.llm.account import Account, Price
from agent.llm.conversation import Conversation
from agent.llm.opinions import Reviewer
from agent.llm.prompt import opening
from agent.llm.recording import EXCHANGES, Recording
from agent.llm.replaying import Recorded
from agent.llm.talk import Talk
from agent.llm.text_calls import InText
from agent.owed import out_of_time
from agent.proposers.model import Model
from agent.reporting.progress import Note
from agent.skill_packs import Packs
from agent.workbench import REGISTRY, Workbench
from tools.registry import Registry, Request, Result, Tool
from tools.registry.files import Text

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
ChatFor = Callable[[str], Chat]  # by the name of a conversation


@dataclass(frozen=True)
class Role:
    """A model at work: what it says under the name of each conversation, and on whose account."""

    chat: ChatFor
    account: Account


@dataclass(frozen=True)
class Cast:
    """Who plays which part. `triage` is None where every step is worth asking."""

    writer: Role
    reviewer: Role
    triage: Role | None


def open_model(ctx: RunContext) -> Model:
    """The models that `ctx.config` names, after each has shown that it answers, or a recording of them. Raises:
    ModelError, RunDamaged.
    """
    packs = Packs.of(ctx.config.skills)
    if ctx.config.replay is not None:
        recorded = Recorded.read(ctx.config.replay)
        cast, drafts = _replayed(ctx, recorded), recorded.drafts
    else:
        cast, drafts = _asked(ctx, packs), ctx.config.drafts
    return Model(partial(_begin, ctx, packs, cast, drafts))


def _begin(ctx: RunContext, packs: Packs, cast: Cast, drafts: int, step: str, stopped: threading.Event) -> list[Talk]:
    """The conversations of a step. They share the run, so that one tool works at a time."""
    one_by_one, told = threading.Lock(), opening(ctx, step)
    talks = []
    for draft in range(1, drafts + 1):
        name = step if draft == 1 else f"{step}#{draft}"
        review = f"{name}:review"
        reviewer = Reviewer(cast.reviewer.chat(review), cast.reviewer.account, packs, partial(_record, ctx, review),
                            lambda said: ctx.progress.emit(Note(said)))  # fmt: skip
        bench = Workbench.open(ctx, step, name)
        registry = REGISTRY if ctx.config.replay is None else REGISTRY.without_looking()
        conversation = Conversation(cast.writer.chat(name), registry, bench, cast.writer.account, step, list(told),
                                    Recording(ctx.run_dir / EXCHANGES, name).add, ctx.config.tool_calls, one_by_one,
                                    partial(_over, ctx, step, stopped))  # fmt: skip
        talks.append(Talk(conversation, bench, reviewer))
    if cast.triage is not None:
        heard = partial(_record, ctx, f"{step}:triage")
        why = opinions.not_worth_it(cast.triage.chat(f"{step}:triage"), cast.triage.account, told, heard)
        for talk in talks:
            talk.conversation.ended = f"{ctx.config.triage} thinks that the step is not worth it: {why}" if why else ""
    return talks


def _over(ctx: RunContext, step: str, stopped: threading.Event) -> str:
    if stopped.is_set():
        return "the run is stopped"
    return "the time budget was used up" if out_of_time(ctx, step) else ""


def _record(ctx: RunContext, name: str, messages: Sequence[Message], turn: Turn) -> None:
    Recording(ctx.run_dir / EXCHANGES, name).add(messages, turn)


def _replayed(ctx: RunContext, recorded: Recorded) -> Cast:
    role = Role(recorded.chat, accounts.opened(ctx.run_dir, ctx.config.tokens))
    return Cast(role, role, role if recorded.holds(":triage") else None)


def _asked(ctx: RunContext, packs: Packs) -> Cast:
    config = ctx.config
    assert config.model is not None
    price = Price.of_numbers(config.price) if config.price else prices.of(config.model)
    if config.dollars is not None and price is None:
        raise ModelError(f"The price of {config.model} is not known, so that --dollars cannot be held.",
                         hint="--price 2,10 says what a million tokens of prompts and of answers cost.")  # fmt: skip
    account = accounts.opened(ctx.run_dir, config.tokens, config.dollars, price, config.drafts)
    writer = _role(ctx, packs, config.model, account)

    def other(name: str | None) -> Role:
        if name is None or name == config.model:
            return writer
        its_price = prices.of(name)
        if config.dollars is not None and its_price is None:
            raise ModelError(f"The price of {name} is not known, so that --dollars cannot be held.")
        chat = _client(ctx, name)
        return Role(lambda _: chat, account.at(its_price))

    return Cast(writer, other(config.reviewer), other(config.triage) if config.triage else None)


def _role(ctx: RunContext, packs: Packs, name: str, account: Account) -> Role:
    """Called tools natively, or in words where it cannot. Raises: ModelError."""
    chat: Chat = _client(ctx, name)
    try:
        preflight(chat, account)
    except ModelWithoutTools:
        chat = InText(chat, packs)
        preflight(chat, account)
        ctx.progress.emit(Note(f"{name} calls no tools by itself, and does so in words"))
    found = chat
    return Role(lambda _: found, account)


def _client(ctx: RunContext, name: str) -> Chat:
    try:
        from agent.llm.client import Client, Endpoint
    except ModuleNotFoundError as error:
        raise ModelError(f"A model needs the package {error.name}, which is not installed.",
                         hint="Install `ratchet-agent[llm]` beside Ratchet.") from error  # fmt: skip
    url, key = ctx.config.base_url or os.environ.get(URL_VARIABLE), os.environ.get(KEY_VARIABLE, "")
    if not url and not key:
        raise KeyRefused(f"There is no key for {name}.",
                         hint=f"Set {KEY_VARIABLE}; an endpoint that needs none is named by --base-url.")  # fmt: skip
    if url and not url.startswith(("http://", "https://")):
        raise ModelUnreachable(f"{url} is no address of an endpoint.", hint="One begins with http:// or https://.")
    endpoint = Endpoint(url, name, key)
    return Client(endpoint, told=lambda said: ctx.progress.emit(Note(said)))


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
