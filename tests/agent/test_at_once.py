"""What is done at the same time ends with what it is begun for."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from agent.at_once import at_once


def test_what_is_raised_ends_what_is_waited_for_and_nothing_queued_starts() -> None:
    begun, ended, over = threading.Event(), threading.Event(), list[str]()

    def wait(name: str) -> None:
        begun.set()
        assert ended.wait(60)
        over.append(name)

    with pytest.raises(KeyboardInterrupt), at_once(1, ended.set) as threads:
        for name in ("running", "queued"):
            threads.begin(partial(wait, name))
        assert begun.wait(10)
        raise KeyboardInterrupt
    assert over == ["running"], "what it made is stored first"


def test_all_that_is_begun_is_over_in_the_end_and_what_fails_says_so_when_it_is_asked() -> None:
    with at_once(2, lambda: pytest.fail("nothing was given up")) as threads:
        both = threading.Barrier(2, timeout=10)  # neither passes alone
        first, second = threads.begin(both.wait), threads.begin(both.wait)
        failed = threads.begin(lambda: 1 // 0)
    assert {first.result(), second.result()} == {0, 1}
    with pytest.raises(ZeroDivisionError):
        failed.result()
