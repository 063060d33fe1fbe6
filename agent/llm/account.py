"""What a run may spend on models, and what it has spent. It asks nobody: whoever asks a model asks it first.

Who asks has what it may need reserved, so that several together spend no more than one may. Tokens that an endpoint
does not tell are never nought: they are guessed by their length, apart from what was told, and a limit of dollars ends
there.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from agent.llm import BudgetReached, Usage
from agent.records.atomic_file import write_atomically

LEAST_ANSWER = 256  # tokens; where less is left, a model could say nothing of use


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
    """Requests of which the endpoint did not say what they took; answers that broke off are among them."""
    guessed: int = 0
    """Tokens of those, by their length."""
    dollars: float | None = 0.0
    """None: not known."""
    seconds: float = 0.0
    """Of waiting for answers."""

    @property
    def tokens(self) -> int:
        """With the guesses: what a limit is held against."""
        return self.prompt + self.completion + self.guessed

    def add(self, usage: Usage, guess: int, dollars: float | None, seconds: float, requests: int = 1) -> None:
        self.requests += requests
        self.prompt += usage.prompt or 0
        self.completion += usage.completion or 0
        self.cached += usage.cached or 0
        if usage.prompt is None or usage.completion is None:
            self.untold += requests
            self.guessed += max(0, guess - (usage.prompt or 0) - (usage.completion or 0))
        self.dollars = None if self.dollars is None or dollars is None else self.dollars + dollars
        self.seconds += seconds


@dataclass
class _Reserved:
    """For what was asked and is not answered yet, by all who ask."""

    tokens: int = 0
    dollars: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)


@dataclass
class Account:
    """Limits of a run, None where there is none. `save` is called with every change."""

    tokens: int | None = None
    dollars: float | None = None
    price: Price | None = None
    askers: int = 1
    """How many may ask at the same time: each may take its share of what is left."""
    save: Callable[[], None] = lambda: None
    spent: Spent = field(default_factory=Spent)
    by_step: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    _reserved: _Reserved = field(default_factory=_Reserved)

    def __post_init__(self) -> None:
        if self.dollars is not None and self.price is None:
            raise ValueError("a limit of dollars needs a price")

    def at(self, price: Price | None) -> Account:
        """The same account, for a model of another price. Raises: ValueError where a limit of dollars needs one."""
        return replace(self, price=price)

    def add(self, step: str, usage: Usage, seconds: float, guess: int = 0) -> float | None:
        """What it cost, if that is known. `guess`: tokens of the exchange by its length, where nobody tells."""
        dollars = self.price.of(usage) if self.price is not None else None
        self._book(step, usage, guess, dollars, seconds)
        return dollars

    def add_lost(self, step: str, answers: int, prompt: int, completion: int) -> float | None:
        """Answers that broke off, by the length of what was asked and heard: nobody tells what they took. What it cost,
        by that.
        """
        guessed = Usage(prompt=prompt, completion=completion)
        dollars = self.price.of(guessed) if self.price is not None else None
        self._book(step, Usage(), prompt + completion, dollars, 0.0, answers)
        return dollars

    def _book(
        self, step: str, usage: Usage, guess: int, dollars: float | None, seconds: float, requests: int = 1
    ) -> None:
        with self._reserved.changed:
            for spent in (self.spent, self.by_step[step]):
                spent.add(usage, guess, dollars, seconds, requests)
            self.save()

    @contextmanager
    def granted(self, prompt: int) -> Iterator[int | None]:
        """`most_tokens`, reserved together with the prompt until the answer is booked. Where others hold what it needs,
        it waits for what they leave over. Raises: BudgetReached.
        """
        held = self._reserved
        with held.changed:
            while (most := self.most_tokens(prompt)) == 0:
                if not (held.tokens or held.dollars):
                    raise BudgetReached(self.reached(prompt))
                held.changed.wait()
            tokens = prompt + most if most is not None else 0
            dollars = self._price_of(prompt, most) if most is not None else 0.0
            held.tokens, held.dollars = held.tokens + tokens, held.dollars + dollars
        try:
            yield most
        finally:
            with held.changed:
                held.tokens, held.dollars = held.tokens - tokens, held.dollars - dollars
                held.changed.notify_all()

    def _price_of(self, prompt: int, completion: int) -> float:
        return (self.price.of(Usage(prompt=prompt, completion=completion)) or 0.0) if self.price is not None else 0.0

    def most_tokens(self, prompt: int) -> int | None:
        """Of an answer to a prompt of at most so many tokens; None where nothing limits it. 0: it may not be asked."""
        left = []
        if self.tokens is not None:
            left.append(self._left_tokens(prompt))
        if self.dollars is not None and self.price is not None:
            if self.spent.dollars is None:  # what is not known is taken for all of it
                return 0
            all_of_it = self.dollars - self.spent.dollars
            share = min(all_of_it / self.askers, all_of_it - self._reserved.dollars)
            rest = share - prompt * self.price.prompt / 1e6
            if rest < 0:
                return 0
            if self.price.completion:
                left.append(int(rest / self.price.completion * 1e6))
        if not left:
            return None
        return min(left) if min(left) >= LEAST_ANSWER else 0

    def _left_tokens(self, prompt: int) -> int:
        assert self.tokens is not None
        left = self.tokens - self.spent.tokens
        return min(left // self.askers, left - self._reserved.tokens) - prompt

    def reached(self, prompt: int = 0) -> str:
        """Which limit does not allow another request with such a prompt; empty when none."""
        if self.most_tokens(prompt) != 0:
            return ""
        needs = f"; what comes next may take {prompt + LEAST_ANSWER:,} tokens"
        if self.tokens is not None and self._left_tokens(prompt) < LEAST_ANSWER:
            return f"the budget of {self.tokens} tokens: {self.spent.tokens} are spent{needs}"
        spent = "an unknown part is" if self.spent.dollars is None else f"{self.spent.dollars:.2f} are"
        return f"the budget of {self.dollars:.2f} dollars: {spent} spent{needs}"


class Spending(BaseModel):
    """What an account holds, as it lies in a run's folder."""

    spent: Spent = Field(default_factory=Spent)
    by_step: dict[str, Spent] = Field(default_factory=dict)


FILE = "spent.json"


def kept(run_dir: Path) -> Spending:
    """Nothing spent where there is no file. Raises: OSError, pydantic.ValidationError."""
    file = run_dir / FILE
    return Spending.model_validate_json(file.read_bytes()) if file.exists() else Spending()


def opened(
    run_dir: Path, tokens: int | None, dollars: float | None = None, price: Price | None = None, askers: int = 1
) -> Account:
    """An account whose spending outlives the process. Raises: OSError, pydantic.ValidationError."""
    known = kept(run_dir)
    account = Account(
        tokens=tokens,
        dollars=dollars,
        price=price,
        askers=askers,
        spent=known.spent,
        by_step=defaultdict(Spent, known.by_step),
    )

    def save() -> None:
        now = Spending(spent=account.spent, by_step=account.by_step)
        write_atomically(run_dir / FILE, now.model_dump_json(indent=1) + "\n")

    account.save = save
    return account
