"""The account of a run with its models: every exchange is asked for here, held to limits, counted and recorded.

Counts what the endpoint reports after each answer. A limit is checked before each request, so the last answer may pass
it. Tokens that an endpoint does not report are unknown, not 0: they are estimated from the length of the exchange,
counted apart, and end a limit of dollars.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agent.llm import BudgetReached, Chat, Message, ModelError, Turn, Usage
from agent.llm.recording import EXCHANGES, ConversationLog
from agent.records.atomic_file import write_atomically

CHARACTERS_A_TOKEN = 2.0  # in digits and signs: an estimate is rather too high
FILE = "spent.json"  # in a run's folder


class Price(BaseModel):
    """Dollars for a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    """Of a prompt, read from a cache; as the rest of it where nothing is said."""

    @classmethod
    def of_model(cls, model: str) -> Price | None:
        """By the longest name in `prices.toml` that this one is, or begins with; another version is another model."""
        name = model.rpartition("/")[2]
        fits = [each for each in _price_table() if re.match(re.escape(each) + r"(?![.\d])", name)]
        return _price_table()[max(fits, key=len)] if fits else None

    def of(self, usage: Usage) -> float | None:
        if usage.total is None:
            return None
        prompt, completion = usage.prompt or 0, usage.completion or 0
        cached = min(usage.cached or 0, prompt)
        rate = self.prompt if self.cached is None else self.cached
        return (cached * rate + (prompt - cached) * self.prompt + completion * self.completion) / 1e6


@cache
def _price_table() -> dict[str, Price]:
    text = Path(__file__).with_name("prices.toml").read_text(encoding="utf-8")
    return {name: Price.model_validate(row) for name, row in tomllib.loads(text).items()}


class Spent(BaseModel):
    """By one step, or by all."""

    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    untold: int = 0
    """Requests whose tokens the endpoint did not report."""
    guessed: int = 0
    """Tokens of those, by their length."""
    dollars: float | None = 0.0
    """None: not known."""
    seconds: float = 0.0
    """Of waiting for answers."""

    @property
    def tokens(self) -> int:
        """With the estimates: what a limit is held against."""
        return self.prompt + self.completion + self.guessed

    def add(self, usage: Usage, guess: int, dollars: float | None, seconds: float) -> None:
        self.requests += 1
        self.prompt += usage.prompt or 0
        self.completion += usage.completion or 0
        self.cached += usage.cached or 0
        if usage.total is None:
            self.untold += 1
            self.guessed += max(0, guess - (usage.prompt or 0) - (usage.completion or 0))
        self.dollars = None if self.dollars is None or dollars is None else self.dollars + dollars
        self.seconds += seconds


class Spending(BaseModel):
    """`spent.json`: what a run has spent on models."""

    spent: Spent = Field(default_factory=Spent)
    by_step: dict[str, Spent] = Field(default_factory=dict)

    @classmethod
    def of_run(cls, run_dir: Path) -> Spending:
        """Nothing spent where there is no file. Raises: OSError, pydantic.ValidationError."""
        file = run_dir / FILE
        return cls.model_validate_json(file.read_bytes()) if file.exists() else cls()


class Charged(NamedTuple):
    """An answer and its cost; `dollars` is None where that is not known."""

    turn: Turn
    tokens: int
    dollars: float | None


@dataclass
class Account:
    """Limits of a run, None where there is none, and the price of a model. `run_dir` is where spending and exchanges
    are kept, if anywhere.
    """

    tokens: int | None = None
    dollars: float | None = None
    price: Price | None = None
    model: str = ""
    spending: Spending = field(default_factory=Spending)
    run_dir: Path | None = None
    _logs: dict[str, ConversationLog] = field(default_factory=dict)  # of the conversations in progress, by name

    def __post_init__(self) -> None:
        if self.dollars is not None and self.price is None:
            raise ModelError(
                f"The price of {self.model} is not known, so that --dollars cannot be held.",
                hint="--price 2,10 says what a million tokens of prompts and of answers cost.",
            )

    @classmethod
    def of_run(cls, run_dir: Path, **limits: Any) -> Account:
        """An account that outlives the process. Raises: ModelError where a limit of dollars needs a price, OSError,
        pydantic.ValidationError.
        """
        return cls(**limits, spending=Spending.of_run(run_dir), run_dir=run_dir)

    def at(self, price: Price | None, model: str) -> Account:
        """The same account, for another model. Raises: ModelError where a limit of dollars needs a price."""
        return replace(self, price=price, model=model)

    def ask(self, name: str, chat: Chat, messages: list[Message], tools: Sequence[dict[str, Any]] = ()) -> Charged:
        """Ask a model. `name` is that of the conversation, `of:purpose` or a step; its last part is charged.

        Raises: BudgetReached, ModelError, OSError.
        """
        if why := self.reached():
            raise BudgetReached(why)
        begun = time.monotonic()
        turn = chat.ask(messages, tools)
        length = len(json.dumps([*messages, *tools, turn.reasoning, turn.as_message()]))
        guess = int(length / CHARACTERS_A_TOKEN)
        dollars = self.add(name.rpartition(":")[2], turn.usage, time.monotonic() - begun, guess)
        if self.run_dir is not None:
            known = self._logs.get(name)
            if known is None or known.messages is not messages:
                known = self._logs[name] = ConversationLog(self.run_dir / EXCHANGES, name, messages)
            known.add(turn)
        return Charged(turn, guess if turn.usage.total is None else turn.usage.total, dollars)

    def add(self, purpose: str, usage: Usage, seconds: float, guess: int = 0) -> float | None:
        """What an answer cost, if that is known. `guess`: its tokens where the endpoint does not report them."""
        dollars = self.price.of(usage) if self.price is not None else None
        for spent in (self.spending.spent, self.spending.by_step.setdefault(purpose, Spent())):
            spent.add(usage, guess, dollars, seconds)
        if self.run_dir is not None:
            write_atomically(self.run_dir / FILE, self.spending.model_dump_json(indent=1) + "\n")
        return dollars

    def reached(self) -> str:
        """Which limit allows no further request; empty when none is reached."""
        spent = self.spending.spent
        if self.tokens is not None and spent.tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens: {spent.tokens} are spent"
        if self.dollars is None or (spent.dollars is not None and spent.dollars < self.dollars):
            return ""
        so_far = "an unknown part is" if spent.dollars is None else f"{spent.dollars:.2f} are"
        return f"the budget of {self.dollars:.2f} dollars: {so_far} spent"
