"""Do several things of a run at the same time, in threads that end with what they are begun for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

PUT_AWAY_S = 20.0  # to store what a stopped thread has finished

T = TypeVar("T")


@dataclass
class AtOnce:
    pool: ThreadPoolExecutor
    _begun: list[Future[Any]] = field(default_factory=list)

    def begin(self, what: Callable[[], T]) -> Future[T]:
        """What waits for another has to be begun after it: threads may be fewer, and begin in this order."""
        future = self.pool.submit(what)
        self._begun.append(future)
        return future

    def give_up(self, end_running: Callable[[], None]) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        end_running()
        wait([each for each in self._begun if not each.cancelled()], PUT_AWAY_S)


@contextmanager
def at_once(threads: int, end_running: Callable[[], None]) -> Iterator[AtOnce]:
    """So many threads. What is raised in here, by Ctrl-C too, ends them: `end_running` stops what they wait for."""
    begun = AtOnce(ThreadPoolExecutor(threads))
    try:
        yield begun
    except BaseException:
        begun.give_up(end_running)
        raise
    begun.pool.shutdown()
