"""What is spent is counted as it is told, and a limit is kept before it is passed."""

from __future__ import annotations

import threading

import pytest

from agent.llm import BudgetReached, Usage
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


def test_what_is_left_of_a_limit_is_told_to_the_token() -> None:
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


def test_who_asks_beside_others_cannot_pass_a_limit_together_with_them() -> None:
    limits = {"tokens": Account(tokens=100_000, askers=2), "dollars": Account(dollars=1.0, price=PRICE, askers=2)}
    for name, account in limits.items():
        ended: list[str] = []

        def take_all(account: Account = account, ended: list[str] = ended) -> None:
            try:
                while True:
                    with account.granted(10) as most:
                        account.add("one", Usage(prompt=10, completion=most), 0.0)
            except BudgetReached as error:
                ended.append(error.message)

        other = threading.Thread(target=take_all, daemon=True)
        with account.granted(1000) as most:
            other.start()
            other.join(0.3)
            assert other.is_alive(), "it waits for what the other may leave over"
            account.add("two", Usage(prompt=1000, completion=most), 0.0)
        other.join(10)
        assert ended and name in ended[0] and set(account.by_step) == {"one", "two"}
        assert account.spent.tokens <= (account.tokens or 10**9)
        assert (account.spent.dollars or 0.0) <= (account.dollars or 1.0) + 1e-9


def test_what_is_not_used_of_what_was_reserved_is_given_back() -> None:
    account = Account(tokens=10_000)
    with pytest.raises(RuntimeError), account.granted(1000) as most:
        assert most == 9000 and account.most_tokens(0) == 0
        raise RuntimeError
    assert account.most_tokens(1000) == 9000
    with account.at(PRICE).granted(1000):
        assert account.most_tokens(0) == 0, "a model of another price spends of the same"


def test_answers_that_broke_off_are_charged_by_their_length() -> None:
    account = Account(price=PRICE, dollars=1.0)
    account.add_lost("s", 2, 20_000, 1_000)
    assert (account.spent.requests, account.spent.untold, account.spent.tokens) == (2, 2, 21_000)
    assert account.spent.dollars == pytest.approx(0.04 + 0.01) and account.reached() == ""
