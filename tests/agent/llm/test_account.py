"""What is spent is counted as it is told, and a limit is kept before it is passed."""

from __future__ import annotations

import pytest

from agent.llm import Usage
from agent.llm.account import LEAST_ANSWER, Account, Price

PRICE = Price(prompt=2.0, completion=10.0, cached=0.5)


def test_tokens_and_dollars_are_counted_by_step() -> None:
    saved: list[int] = []
    account = Account(price=PRICE)
    account.save = lambda: saved.append(account.spent.tokens)
    account.add("write_kernels", Usage(prompt=1_000_000, completion=100_000, cached=400_000), 2.0)
    account.add("swap_attention", Usage(prompt=500_000, completion=0), 1.0)
    assert account.by_step["write_kernels"].dollars == pytest.approx(0.2 + 1.2 + 1.0)
    assert account.spent.dollars == pytest.approx(2.4 + 1.0)
    assert (account.spent.requests, account.spent.tokens, account.spent.seconds) == (2, 1_600_000, 3.0)
    assert saved == [1_100_000, 1_600_000]
    assert account.most_tokens(10**9) is None and account.reached(10**9) == ""


def test_what_is_not_told_is_not_nought() -> None:
    account = Account(tokens=1000)
    account.add("s", Usage(), 1.0, guess=400)
    account.add("s", Usage(completion=50), 1.0, guess=200)
    assert (account.spent.untold, account.spent.guessed, account.spent.tokens) == (2, 550, 600)
    assert "600 are spent" in account.reached(200), "a limit holds for what is guessed as well"
    account = Account(dollars=5.0, price=PRICE)
    account.add("s", Usage(completion=5), 1.0, guess=10)
    assert account.spent.dollars is None and "an unknown part is spent" in account.reached()
    account = Account()
    account.add("s", Usage(prompt=5, completion=5), 1.0, guess=99)
    assert (account.spent.untold, account.spent.tokens, account.spent.dollars) == (0, 10, None), "nobody gave a price"
    with pytest.raises(ValueError, match="needs a price"):
        Account(dollars=1.0)


def test_a_limit_of_tokens_holds_to_the_token() -> None:
    account = Account(tokens=10_000)
    account.add("s", Usage(prompt=6_000, completion=1_000), 1.0)
    assert account.most_tokens(3_000 - LEAST_ANSWER) == LEAST_ANSWER
    assert account.reached(3_000 - LEAST_ANSWER) == ""
    assert account.most_tokens(3_001 - LEAST_ANSWER) == 0
    assert "the budget of 10000 tokens: 7000 are spent" in account.reached(3_001 - LEAST_ANSWER)


def test_a_limit_of_dollars_bounds_the_answer() -> None:
    account = Account(dollars=1.0, price=PRICE)
    assert account.most_tokens(100_000) == 80_000
    account.add("s", Usage(prompt=100_000, completion=79_000), 1.0)
    assert account.most_tokens(0) == 1_000
    assert "the budget of 1.00 dollars: 0.99 are spent" in account.reached(5_000)
