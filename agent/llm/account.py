"""What a run may spend on models, and what it has spent, by what the endpoint reports after each answer.

A limit is checked before each request, so the last answer may pass it. Tokens that an endpoint does not report are
unknown, not 0: they are estimated from the length of the exchange, counted apart, and end a limit of dollars.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agent.llm import BudgetReached, Chat, Message, Turn, Usage
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
    def of_numbers(cls, numbers: Sequence[float]) -> Price:
        """Of prompts, of answers, and of cached prompts where there are three."""
        return cls(prompt=numbers[0], completion=numbers[1], cached=numbers[2] if len(numbers) > 2 else None)

    @classmethod
    def of_model(cls, model: str) -> Price | None:
        """By the longest name in `prices.toml` that this one is, or begins with; another version is another model."""
        name = model.rpartition("/")[2]
        fits = [each for each in _price_table() if re.match(re.escape(each) + r"(?![.\d])", name)]
        return _price_table()[max(fits, key=len)] if fits else None

    def of(self, usage: Usage) -> float | None:
        if usage.prompt is None or usage.completion is None:
            return None
        cached = min(usage.cached or 0, usage.prompt)
        rate = self.prompt if self.cached is None else self.cached
        return (cached * rate + (usage.prompt - cached) * self.prompt + usage.completion * self.completion) / 1e6


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
        if usage.prompt is None or usage.completion is None:
            self.untold += 1
            self.guessed += max(0, guess - (usage.prompt or 0) - (usage.completion or 0))
        self.dollars = None if self.dollars is None or dollars is None else self.dollars + dollars
        self.seconds += seconds


class Spending(BaseModel):
    """What an account holds, as it lies in a run's folder."""

    spent: Spent = Field(default_factory=Spent)
    by_step: dict[str, Spent] = Field(default_factory=dict)


class Asked(NamedTuple):
    """An answer and its cost; `dollars` is None where that is not known."""

    turn: Turn
    tokens: int
    dollars: float | None


@dataclass
class Account:
    """Limits of a run, None where there is none. `save` is called with every change."""

    tokens: int | None = None
    dollars: float | None = None
    price: Price | None = None
    save: Callable[[], None] = lambda: None
    spent: Spent = field(default_factory=Spent)
    by_step: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))

    def __post_init__(self) -> None:
        if self.dollars is not None and self.price is None:
            raise ValueError("a limit of dollars needs a price")

    def at(self, price: Price | None) -> Account:
        """The same account, for a model of another price. Raises: ValueError where a limit of dollars needs one."""
        return replace(self, price=price)

    def ask(self, step: str, chat: Chat, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> Asked:
        """Ask a model and charge `step` for the answer. Raises: BudgetReached, ModelError."""
        if why := self.reached():
            raise BudgetReached(why)
        begun = time.monotonic()
        turn = chat.ask(messages, tools)
        length = len(json.dumps([*messages, *tools, turn.reasoning, turn.as_message()]))
        guess = int(length / CHARACTERS_A_TOKEN)
        dollars = self.add(step, turn.usage, time.monotonic() - begun, guess)
        told = turn.usage
        tokens = guess if told.prompt is None or told.completion is None else told.prompt + told.completion
        return Asked(turn, tokens, dollars)

    def add(self, step: str, usage: Usage, seconds: float, guess: int = 0) -> float | None:
        """What an answer cost, if that is known. `guess`: its tokens where the endpoint does not report them."""
        dollars = self.price.of(usage) if self.price is not None else None
        for spent in (self.spent, self.by_step[step]):
            spent.add(usage, guess, dollars, seconds)
        self.save()
        return dollars

    def reached(self) -> str:
        """Which limit allows no further request; empty when none is reached."""
        if self.tokens is not None and self.spent.tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens: {self.spent.tokens} are spent"
        if self.dollars is None or (self.spent.dollars is not None and self.spent.dollars < self.dollars):
            return ""
        spent = "an unknown part is" if self.spent.dollars is None else f"{self.spent.dollars:.2f} are"
        return f"the budget of {self.dollars:.2f} dollars: {spent} spent"


def kept(run_dir: Path) -> Spending:
    """Nothing spent where there is no file. Raises: OSError, pydantic.ValidationError."""
    file = run_dir / FILE
    return Spending.model_validate_json(file.read_bytes()) if file.exists() else Spending()


def opened(run_dir: Path, tokens: int | None, dollars: float | None = None, price: Price | None = None) -> Account:
    """An account whose spending outlives the process. Raises: OSError, pydantic.ValidationError."""
    known = kept(run_dir)
    by_step = defaultdict(Spent, known.by_step)

    def save() -> None:
        now = Spending(spent=known.spent, by_step=by_step)
        write_atomically(run_dir / FILE, now.model_dump_json(indent=1) + "\n")

    return Account(tokens, dollars, price, save, known.spent, by_step)
