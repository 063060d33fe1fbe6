"""What a run may spend on models, and what it has spent. It asks nobody: whoever asks a model asks it first.

Tokens that an endpoint does not tell are counted as unknown, never as nought; so is a price that nobody gave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from agent.llm import Usage

LEAST_ANSWER = 256  # tokens; where less is left, a model could say nothing of use


class Price(BaseModel):
    """Dollars for a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    """Of a prompt, read from a cache; as the rest of it where nothing is said."""

    def of(self, usage: Usage) -> float | None:
        if usage.prompt is None or usage.completion is None:
            return None
        cached = min(usage.cached or 0, usage.prompt)
        rate = self.prompt if self.cached is None else self.cached
        return (cached * rate + (usage.prompt - cached) * self.prompt + usage.completion * self.completion) / 1e6


class Spent(BaseModel):
    """By one step, or by all."""

    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    untold: int = 0
    """Requests of which the endpoint did not say what they took."""
    dollars: float | None = 0.0
    """None: not known."""
    seconds: float = 0.0
    """Of waiting for answers."""

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def add(self, usage: Usage, dollars: float | None, seconds: float) -> None:
        self.requests += 1
        self.prompt += usage.prompt or 0
        self.completion += usage.completion or 0
        self.cached += usage.cached or 0
        self.untold += usage.prompt is None or usage.completion is None
        self.dollars = None if self.dollars is None or dollars is None else self.dollars + dollars
        self.seconds += seconds


@dataclass
class Account:
    """Limits of a run, None where there is none. `save` is called with every change."""

    tokens: int | None = None
    dollars: float | None = None
    price: Price | None = None
    save: Callable[[], None] = lambda: None
    spent: Spent = field(default_factory=Spent)
    by_step: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))

    def add(self, step: str, usage: Usage, seconds: float) -> None:
        dollars = self.price.of(usage) if self.price is not None else None
        for spent in (self.spent, self.by_step[step]):
            spent.add(usage, dollars, seconds)
        self.save()

    def most_tokens(self, prompt: int) -> int | None:
        """Of an answer to a prompt of about so many tokens; None where nothing limits it. 0: it may not be asked."""
        left = []
        if self.tokens is not None:
            left.append(self.tokens - self.spent.tokens - prompt)
        if (
            self.dollars is not None
            and self.price is not None
            and self.price.completion
            and self.spent.dollars is not None
        ):
            rest = self.dollars - self.spent.dollars - prompt * self.price.prompt / 1e6
            left.append(int(rest / self.price.completion * 1e6))
        if not left:
            return None
        return min(left) if min(left) >= LEAST_ANSWER else 0

    def reached(self, prompt: int = 0) -> str:
        """Which limit does not allow another request with such a prompt; empty when none."""
        if self.most_tokens(prompt) != 0:
            return ""
        if self.tokens is not None and self.tokens - self.spent.tokens - prompt < LEAST_ANSWER:
            return f"the budget of {self.tokens} tokens: {self.spent.tokens} are spent"
        return f"the budget of {self.dollars:.2f} dollars: {self.spent.dollars or 0.0:.2f} are spent"
