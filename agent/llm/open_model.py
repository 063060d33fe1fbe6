"""Put a run's models together: endpoints are tried, what they spend is counted and kept, what is said is recorded."""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agent.config import address
from agent.context import RunContext
from agent.llm import (
    Chat,
    KeyRefused,
    Message,
    ModelError,
    ModelRefused,
    ModelUnknown,
    ModelUnreachable,
    ModelWithoutTools,
    Turn,
    opinions,
    preflight,
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
from agent.owed import USED_UP
from agent.proposers.model import Model
from agent.reporting.progress import Answering, Note
from agent.reporting.wording import count
from agent.skill_packs import Packs
from agent.workbench import REGISTRY, Workbench

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
ChatFor = Callable[[str], Chat]  # by the name of a conversation


@dataclass(frozen=True)
class Role:
    """A model at work: what it says under the name of each conversation, and on whose account."""

    name: str
    chat: ChatFor
    account: Account


@dataclass(frozen=True)
class Cast:
    """Who plays which part. `triage` is None where every step is worth asking."""

    writer: Role
    reviewer: Role
    triage: Role | None


def open_model(ctx: RunContext, *, resumed: bool = False) -> Model:
    """The models that `ctx.config` names, after each has shown that it answers, or a recording of them. In a run that
    is gone on with that is asked when it is their turn: what is left may need none.

    Raises: ModelError, RunDamaged.
    """
    packs = Packs.of(ctx.config.skills)
    if ctx.config.replay is not None:
        recorded = Recorded.read(ctx.config.replay)
        if recorded.torn:
            ctx.progress.emit(Note(f"the recording: {count(recorded.torn, 'line')} left out, torn"))
        opened, drafts = partial(_replayed, ctx, recorded), recorded.drafts
    else:
        opened, drafts = partial(_asked, ctx, packs), ctx.config.drafts
    once = functools.cache(opened)
    if not resumed:
        once()
    return Model(partial(_begin, ctx, packs, once, drafts))


def _begin(
    ctx: RunContext, packs: Packs, opened: Callable[[], Cast], drafts: int, step: str, stopped: threading.Event
) -> list[Talk]:
    """The conversations of a step. They share the run, so that one tool works at a time. Raises: ModelError."""
    cast = opened()
    one_by_one, told = threading.Lock(), opening(ctx, step)
    talks = []
    for draft in range(1, drafts + 1):
        name = step if draft == 1 else f"{step}#{draft}"
        review = f"{name}:review"
        reviewer = Reviewer(
            cast.reviewer.chat(review), cast.reviewer.account, packs, partial(_record, ctx, review), partial(_note, ctx)
        )
        bench = Workbench.open(ctx, step, name)
        registry = REGISTRY if ctx.config.replay is None else REGISTRY.without_looking()
        conversation = Conversation(
            cast.writer.chat(name),
            registry,
            bench,
            cast.writer.account,
            step,
            list(told),
            Recording(ctx.run_dir / EXCHANGES, name).add,
            ctx.config.tool_calls,
            one_by_one,
            partial(_over, ctx, stopped),
        )
        talks.append(Talk(conversation, bench, reviewer))
    if cast.triage is not None:
        name = f"{step}:triage"
        why = opinions.not_worth_it(
            cast.triage.chat(name), cast.triage.account, told, partial(_record, ctx, name), partial(_note, ctx)
        )
        for talk in talks:
            talk.conversation.ended = f"{cast.triage.name} thinks that the step is not worth it: {why}" if why else ""
    return talks


def _over(ctx: RunContext, stopped: threading.Event) -> str:
    if stopped.is_set():
        return "the run is stopped"
    return USED_UP if ctx.budget.used_up() else ""


def _note(ctx: RunContext, said: str) -> None:
    ctx.progress.emit(Note(said))


def _answering(ctx: RunContext, name: str, characters: int) -> None:
    ctx.progress.emit(Answering(name, characters))


def _record(ctx: RunContext, name: str, messages: Sequence[Message], turn: Turn) -> None:
    Recording(ctx.run_dir / EXCHANGES, name).add(messages, turn)


def _replayed(ctx: RunContext, recorded: Recorded) -> Cast:
    """What was spent then is counted, and held to no limit of now."""
    role = Role("the recorded model", recorded.chat, accounts.opened(ctx.run_dir, None))
    return Cast(role, role, role if recorded.holds(":triage") else None)


def _asked(ctx: RunContext, packs: Packs) -> Cast:
    config = ctx.config
    assert config.model is not None
    price = Price.of_numbers(config.price) if config.price else prices.of(config.model)
    if config.dollars is not None and price is None:
        raise _no_price(config.model)
    account = accounts.opened(ctx.run_dir, config.tokens, config.dollars, price, config.drafts)
    roles = {config.model: _writer(ctx, packs, config.model, account)}

    def role(name: str) -> Role:
        if name not in roles:
            roles[name] = _adviser(ctx, name, account)
        return roles[name]

    reviewer, triage = role(config.reviewer or config.model), role(config.triage) if config.triage else None
    return Cast(roles[config.model], reviewer, triage)


def _writer(ctx: RunContext, packs: Packs, name: str, account: Account) -> Role:
    """Called tools natively, or in words where it, or its server, cannot. Raises: ModelError."""
    chat: Chat = _client(ctx, name)
    heard = partial(_record, ctx, f"{preflight.PURPOSE}:{name}")
    try:
        preflight.calls_tools(chat, account, heard)
    except (ModelWithoutTools, ModelRefused, ModelUnknown):  # some servers do not know it together with tools
        chat = InText(chat, packs)
        preflight.calls_tools(chat, account, heard)
        ctx.progress.emit(Note(f"{name} calls no tools by itself, and does so in words"))
    found = chat
    return Role(name, lambda _: found, account)


def _adviser(ctx: RunContext, name: str, account: Account) -> Role:
    """A model that gives opinions; what the table does not know costs what the user said. Raises: ModelError."""
    price = prices.of(name) or (Price.of_numbers(ctx.config.price) if ctx.config.price else None)
    if ctx.config.dollars is not None and price is None:
        raise _no_price(name)
    chat, its_account = _client(ctx, name), account.at(price)
    preflight.fills_in(chat, its_account, name, partial(_record, ctx, f"{preflight.PURPOSE}:{name}"))
    return Role(name, lambda _: chat, its_account)


def _no_price(name: str) -> ModelError:
    return ModelError(
        f"The price of {name} is not known, so that --dollars cannot be held.",
        hint="--price 2,10 says what a million tokens of prompts and of answers cost.",
    )


def _client(ctx: RunContext, name: str) -> Chat:
    try:
        from agent.llm.client import Client, Endpoint
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
        Endpoint(url, name, key),
        partial(_note, ctx),
        answering=partial(_answering, ctx, name),
        left_s=partial(_left_s, ctx),
    )


def _left_s(ctx: RunContext) -> float:
    return math.inf if ctx.budget.deadline is None else ctx.budget.deadline - time.monotonic()
