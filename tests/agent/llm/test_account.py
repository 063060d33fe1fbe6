"""What is spent is counted as it is reported, and a limit that is reached allows no further request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.llm import BudgetReached, Message, Turn, Usage, account
from agent.llm.account import Account, Price

PRICE = Price(prompt=2.0, completion=10.0, cached=0.5)
ASK: list[Message] = [{"role": "user", "content": "Now. " * 20}]


class Says:
    """Reports the same usage for each answer."""

    def __init__(self, usage: Usage) -> None:
        self.usage, self.asked = usage, 0

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        self.asked += 1
        return Turn(text="Yes.", usage=self.usage)


def test_tokens_and_dollars_are_counted_by_step() -> None:
    saved: list[int] = []
    account = Account(price=PRICE)
    account.save = lambda: saved.append(account.spent.tokens)
    account.add("write_kernels", Usage(prompt=1_000_000, completion=100_000, cached=400_000), 2.0)
    account.add("swap_attention", Usage(prompt=500_000, completion=0), 1.0)
    assert account.by_step["write_kernels"].dollars == pytest.approx(0.2 + 1.2 + 1.0)
    assert account.spent.dollars == pytest.approx(2.4 + 1.0)
    assert (account.spent.requests, account.spent.tokens, account.spent.seconds) == (2, 1_600_000, 3.0)
    assert saved == [1_100_000, 1_600_000] and account.reached() == ""


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"tokens": 250}, "the budget of 250 tokens: 330 are spent"),
        ({"dollars": 0.0005, "price": PRICE}, "the budget of 0.00 dollars: 0.00 are spent"),
    ],
    ids=["tokens", "dollars"],
)
@pytest.mark.guard("model limits")
def test_who_has_reached_a_limit_is_not_asked(limits: dict[str, Any], told: str) -> None:
    chat, account = Says(Usage(prompt=100, completion=10)), Account(**limits)
    with pytest.raises(BudgetReached) as caught:
        for _ in range(9):
            account.ask("s", chat, ASK)
    assert caught.value.message == told
    assert chat.asked == (3 if "tokens" in limits else 2), "the last answer may pass a limit"


def test_what_is_not_reported_is_estimated_and_never_nought() -> None:
    chat, account = Says(Usage()), Account(tokens=90)
    asked = account.ask("s", chat, ASK)
    length = len(json.dumps([*ASK, "", asked.turn.as_message()]))
    assert asked.tokens == account.spent.guessed == account.spent.tokens == length // 2 < 90
    account.ask("s", chat, ASK)
    assert account.spent.untold == 2 and "the budget of 90 tokens" in account.reached()
    account = Account(dollars=5.0, price=PRICE)
    assert account.ask("s", Says(Usage(completion=5)), ASK).dollars is None
    assert account.spent.dollars is None and "an unknown part is spent" in account.reached()
    account = Account()
    account.add("s", Usage(prompt=5, completion=5), 1.0, guess=99)
    assert (account.spent.untold, account.spent.tokens, account.spent.dollars) == (0, 10, None), "nobody gave a price"


def test_two_models_share_an_account_at_their_own_prices() -> None:
    account = Account(dollars=1.0, price=Price(prompt=1.0, completion=1.0))
    cheap = account.at(Price(prompt=0.1, completion=0.1))
    account.add("a", Usage(prompt=100_000, completion=0), 0.0)
    cheap.add("b", Usage(prompt=100_000, completion=0), 0.0)
    assert account.spent.dollars == pytest.approx(0.11) and cheap.spent is account.spent
    with pytest.raises(ValueError, match="needs a price"):
        account.at(None)


def test_what_was_spent_outlives_the_process(tmp_path: Path) -> None:
    first = account.opened(tmp_path, 100, 1.0, PRICE)
    first.at(Price(prompt=1.0, completion=1.0)).add("s", Usage(prompt=60, completion=0), 1.0)
    again = account.opened(tmp_path, 100)
    again.add("s", Usage(prompt=40, completion=0), 1.0)
    assert again.by_step["s"].tokens == account.kept(tmp_path).spent.tokens == 100 and "100 tokens" in again.reached()


def test_prices_are_those_of_the_longest_name_and_of_no_later_version() -> None:
    assert Price.of_model("claude-opus-4-5-20251101") == Price(prompt=5, completion=25, cached=0.5)
    assert Price.of_model("anthropic/claude-opus-4-5") == Price.of_model("claude-opus-4-5")
    small, large = Price.of_model("gpt-5.4-mini"), Price.of_model("gpt-5.4")
    assert small is not None and large is not None and small.prompt < large.prompt
    assert [Price.of_model(name) for name in ("gpt-5.9", "gpt-55", "a-model")] == [None] * 3
    assert Price.of_numbers((1.0, 2.0)) == Price(prompt=1, completion=2)
