"""Put a run's models together: endpoints are tried before anything is measured, and share one account."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pydantic import BaseModel

from agent.config import address
from agent.context import RunContext
from agent.llm import (
    BudgetReached,
    Chat,
    KeyRefused,
    Message,
    ModelError,
    ModelRefused,
    ModelUnknown,
    ModelUnreachable,
    ModelWithoutTools,
)
from agent.llm.account import Account, Price
from agent.llm.conversation import Conversation
from agent.llm.opinions import Reviewer, ask_for
from agent.llm.prompt import opening
from agent.llm.recording import RecordedTurns
from agent.llm.text_calls import InText
from agent.proposers.model import Model
from agent.reporting.progress import Answering, Note
from agent.reporting.wording import count
from agent.skill_packs import Packs
from agent.workbench import REGISTRY, Workbench
from tools.registry import Request, Tool

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"


class Ready(Request):
    """Say that you are ready."""


class Opinion(BaseModel):
    """Whether you are ready."""

    ready: bool


@dataclass(frozen=True)
class ModelRole:
    """A model at work: who answers in the conversation of a name, and on which account."""

    chat: Callable[[str], Chat]
    account: Account


def open_model(ctx: RunContext, *, resumed: bool = False) -> Model:
    """The models that `ctx.config` names, after each has shown that it answers, or a recording of them. A resumed run
    asks them when it is their turn: what is left may need none.

    Raises: ModelError, RunDamaged.
    """
    packs = Packs.of(ctx.config.skills)
    if ctx.config.replay is not None:
        recorded = RecordedTurns.read(ctx.config.replay)
        if recorded.torn:
            _note(ctx, f"the recording: {count(recorded.torn, 'line')} left out, torn")
        role = ModelRole(recorded.chat, Account.of_run(ctx.run_dir))  # counted, and held to no limit of now
        return Model(partial(_begin, ctx, packs, lambda: (role, role)))
    once = functools.cache(partial(_asked, ctx, packs))
    if not resumed:
        once()
    return Model(partial(_begin, ctx, packs, once))


def _begin(ctx: RunContext, packs: Packs, opened: Callable[[], tuple[ModelRole, ModelRole]], step: str) -> Conversation:
    """The conversation of a step. Raises: ModelError."""
    writer, reviewer = opened()
    return Conversation(
        writer.chat(step),
        REGISTRY if ctx.config.replay is None else REGISTRY.without_looking(),
        Workbench.open(ctx, step, step),
        writer.account,
        step,
        opening(ctx, step),
        ctx.config.tool_calls,
        ctx.budget.used_up,
        Reviewer(reviewer.chat(f"{step}:review"), reviewer.account, packs, partial(_note, ctx)),
    )


def _note(ctx: RunContext, said: str) -> None:
    ctx.progress.emit(Note(said))


def _asked(ctx: RunContext, packs: Packs) -> tuple[ModelRole, ModelRole]:
    """Who writes, and who reviews. Raises: ModelError."""
    config = ctx.config
    assert config.model is not None
    numbers = dict(zip(("prompt", "completion", "cached"), config.price or (), strict=False))
    given = Price(**numbers) if numbers else None
    limits = {"tokens": config.tokens, "dollars": config.dollars, "price": given or Price.of_model(config.model)}
    account = Account.of_run(ctx.run_dir, model=config.model, **limits)
    writer = _writer(ctx, packs, config.model, account)
    name = config.reviewer or config.model
    if name == config.model:
        return writer, writer
    its_account = account.at(Price.of_model(name) or given, name)  # --price is that of the writer
    chat = _client(ctx, name)
    asked: list[Message] = [{"role": "user", "content": "Say that you are ready."}]
    if ask_for(Opinion, chat, its_account, f"{name}:preflight", asked) is None and not account.reached():
        raise ModelError(
            f"{name} was asked for one record, and gave none of the form.",
            hint="Take a model that can answer with a JSON object.",
        )
    return writer, ModelRole(lambda _: chat, its_account)


def _writer(ctx: RunContext, packs: Packs, name: str, account: Account) -> ModelRole:
    """Called tools natively, or in words where it, or its server, cannot. Raises: ModelError."""
    chat = _client(ctx, name)
    try:
        _calls_a_tool(chat, account, name)
        return ModelRole(lambda _: chat, account)
    except (ModelWithoutTools, ModelRefused, ModelUnknown):  # some servers do not know it together with tools
        in_text = InText(chat, packs)
        _calls_a_tool(in_text, account, name)
        _note(ctx, f"{name} calls no tools by itself, and does so in words")
        return ModelRole(lambda _: in_text, account)


def _calls_a_tool(chat: Chat, account: Account, name: str) -> None:
    """Not asked where a limit is reached. Raises: ModelError, ModelWithoutTools."""
    messages: list[Message] = [{"role": "user", "content": "Call the tool `ready` now. Say nothing else."}]
    try:
        turn = account.ask(f"{name}:preflight", chat, messages, [Tool("ready", Ready).as_function()]).turn
    except BudgetReached:
        return
    if [call.name for call in turn.calls] != ["ready"]:
        raise ModelWithoutTools(
            "The model was offered a tool and asked to call it, and did not.",
            hint="Take a model that calls tools, and a server that is started with tool calls on.",
        )


def _client(ctx: RunContext, name: str) -> Chat:
    try:
        from agent.llm.client import Client
    except ModuleNotFoundError as error:
        raise ModelError(
            f"A model needs the package {error.name}, which is not installed.",
            hint="Install `ratchet-agent[llm]` beside Ratchet.",
        ) from error
    url, key = ctx.config.base_url or os.environ.get(URL_VARIABLE), os.environ.get(KEY_VARIABLE, "").strip()
    if not url and not key:
        raise KeyRefused(
            f"There is no key for {name}.",
            hint=f"Set {KEY_VARIABLE}; an endpoint that needs none is named by --base-url.",
        )
    if url and not url.startswith(("http://", "https://")):
        raise ModelUnreachable(f"{url} is no address of an endpoint.", hint="One begins with http:// or https://.")
    try:
        url = address(url) if url else None
    except ValueError as error:
        raise ModelUnreachable(f"{URL_VARIABLE}: {error}") from None
    return Client(
        name,
        url,
        key,
        told=partial(_note, ctx),
        answering=lambda characters: ctx.progress.emit(Answering(name, characters)),
        deadline=math.inf if ctx.budget.deadline is None else ctx.budget.deadline,
    )
