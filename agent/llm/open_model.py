"""Put a run's models together: endpoints are tried, what they spend is counted and kept, what is said is recorded."""

from __future__ import annotations

import functools
import math
import os
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
    preflight,
)
from agent.llm import account as accounts
from agent.llm.account import Account, Price
from agent.llm.conversation import Conversation
from agent.llm.opinions import Reviewer
from agent.llm.prompt import opening
from agent.llm.recording import EXCHANGES, Recorded, Recording
from agent.llm.text_calls import InText
from agent.owed import USED_UP
from agent.proposers.model import Model
from agent.reporting.progress import Answering, Note
from agent.reporting.wording import count
from agent.skill_packs import Packs
from agent.workbench import REGISTRY, Workbench

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"


@dataclass(frozen=True)
class Role:
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
        recorded = Recorded.read(ctx.config.replay)
        if recorded.torn:
            ctx.progress.emit(Note(f"the recording: {count(recorded.torn, 'line')} left out, torn"))
        role = Role(recorded.chat, accounts.opened(ctx.run_dir, None))  # counted, and held to no limit of now
        return Model(partial(_begin, ctx, packs, lambda: (role, role)))
    once = functools.cache(partial(_asked, ctx, packs))
    if not resumed:
        once()
    return Model(partial(_begin, ctx, packs, once))


def _begin(ctx: RunContext, packs: Packs, opened: Callable[[], tuple[Role, Role]], step: str) -> Conversation:
    """The conversation of a step. Raises: ModelError."""
    writer, reviewer = opened()
    review = f"{step}:review"
    heard = partial(_record, ctx, review)
    return Conversation(
        writer.chat(step),
        REGISTRY if ctx.config.replay is None else REGISTRY.without_looking(),
        Workbench.open(ctx, step, step),
        writer.account,
        step,
        opening(ctx, step),
        Recording(ctx.run_dir / EXCHANGES, step).add,
        ctx.config.tool_calls,
        lambda: USED_UP if ctx.budget.used_up() else "",
        Reviewer(reviewer.chat(review), reviewer.account, packs, heard, partial(_note, ctx)),
    )


def _note(ctx: RunContext, said: str) -> None:
    ctx.progress.emit(Note(said))


def _answering(ctx: RunContext, name: str, characters: int) -> None:
    ctx.progress.emit(Answering(name, characters))


def _record(ctx: RunContext, name: str, messages: Sequence[Message], turn: Turn) -> None:
    Recording(ctx.run_dir / EXCHANGES, name).add(messages, turn)


def _asked(ctx: RunContext, packs: Packs) -> tuple[Role, Role]:
    """Who writes, and who reviews. Raises: ModelError."""
    config = ctx.config
    assert config.model is not None
    given = Price.of_numbers(config.price) if config.price else None
    price = _known(config.model, given or Price.of_model(config.model), config.dollars)
    account = accounts.opened(ctx.run_dir, config.tokens, config.dollars, price)
    writer = _writer(ctx, packs, config.model, account)
    name = config.reviewer or config.model
    if name == config.model:
        return writer, writer
    price = _known(name, Price.of_model(name) or given, config.dollars)  # --price is that of the writer
    chat, its_account = _client(ctx, name), account.at(price)
    preflight.fills_in(chat, its_account, name, partial(_record, ctx, f"{preflight.PURPOSE}:{name}"))
    return writer, Role(lambda _: chat, its_account)


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
    return Role(lambda _: found, account)


def _known(name: str, price: Price | None, dollars: float | None) -> Price | None:
    """The price of a model. Raises: ModelError where a limit of dollars needs one that is not known."""
    if dollars is not None and price is None:
        raise ModelError(
            f"The price of {name} is not known, so that --dollars cannot be held.",
            hint="--price 2,10 says what a million tokens of prompts and of answers cost.",
        )
    return price


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
