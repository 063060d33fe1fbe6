"""What is spent is counted as it is reported, and a limit that is reached allows no further request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.llm import BudgetReached, Message, ModelError, Turn, Usage
from agent.llm.account import Account, Price, Spending
from tests.agent.llm.scripted import Turns

PRICE = Price(prompt=2.0, completion=10.0, cached=0.5)
ASK: list[Message] = [{"role": "user", "content": "Now. " * 20}]


def reporting(usage: Usage) -> Turns:
    return Turns([Turn(text="Yes.", usage=usage)])


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
    chat, account = reporting(Usage(prompt=100, completion=10)), Account(**limits)
    with pytest.raises(BudgetReached) as caught:
        for _ in range(9):
            account.ask("s", chat, ASK)
    assert caught.value.message == told
    assert len(chat.asked) == (3 if "tokens" in limits else 2), "the last answer may pass a limit"


def test_what_is_not_reported_is_estimated_and_never_nought() -> None:
    chat, account = reporting(Usage()), Account(tokens=90)
    charged, spent = account.ask("s", chat, ASK), account.spending.spent
    length = len(json.dumps([*ASK, "", charged.turn.as_message()]))
    assert charged.tokens == spent.guessed == spent.tokens == length // 2 < 90
    account.ask("s", chat, ASK)
    assert spent.untold == 2 and "the budget of 90 tokens" in account.reached()
    account = Account(dollars=5.0, price=PRICE)
    assert account.ask("s", reporting(Usage(completion=5)), ASK).dollars is None
    assert account.spending.spent.dollars is None and "an unknown part is spent" in account.reached()
    account = Account()
    account.add("s", Usage(prompt=5, completion=5), 1.0, guess=99)
    spent = account.spending.spent
    assert (spent.untold, spent.tokens, spent.dollars) == (0, 10, None), "nobody gave a price"


def test_tokens_and_dollars_are_counted_by_step_at_each_models_price_and_outlive_the_process(tmp_path: Path) -> None:
    account = Account.of_run(tmp_path, tokens=2_000_000, dollars=9.0, price=PRICE)
    account.add("write_kernels", Usage(prompt=1_000_000, completion=100_000, cached=400_000), 2.0)
    account.at(Price(prompt=1.0, completion=1.0), "other").add(
        "swap_attention", Usage(prompt=500_000, completion=0), 1.0
    )
    found = Spending.of_run(tmp_path)
    assert found.by_step["write_kernels"].dollars == pytest.approx(0.2 + 1.2 + 1.0)
    assert found.spent.dollars == pytest.approx(2.4 + 0.5) and account.reached() == ""
    assert (found.spent.requests, found.spent.tokens, found.spent.seconds) == (2, 1_600_000, 3.0)
    again = Account.of_run(tmp_path, tokens=2_000_000)
    again.add("swap_attention", Usage(prompt=400_000, completion=0), 1.0)
    assert again.spending.by_step["swap_attention"].tokens == 900_000 and "2000000 tokens" in again.reached()
    with pytest.raises(ModelError, match="price of a-model is not known"):
        account.at(None, "a-model")


def test_prices_are_those_of_the_longest_name_and_of_no_later_version() -> None:
    assert Price.of_model("claude-opus-4-5-20251101") == Price(prompt=5, completion=25, cached=0.5)
    assert Price.of_model("anthropic/claude-opus-4-5") == Price.of_model("claude-opus-4-5")
    small, large = Price.of_model("gpt-5.4-mini"), Price.of_model("gpt-5.4")
    assert small is not None and large is not None and small.prompt < large.prompt
    assert [Price.of_model(name) for name in ("gpt-5.9", "gpt-55", "a-model")] == [None] * 3
