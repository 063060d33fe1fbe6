"""Where a run and an outside agent meet. All work is done by the thread of the run; the other one asks and waits.

A question that takes long is answered in parts: that it is being worked on, and, to `wait`, what came of it. Refuses a
second question before the first is answered.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Any

from agent.reporting.progress import Event, Judging
from tools.registry import Answer
from tools.registry.marks import marked

ADDRESS_FILE = "mcp.json"  # in a run's folder, for its owner alone: where it is served, and the token
ANSWER_S = 45.0  # clients give up on an answer after a minute


class HungUp(Exception):
    """The outside agent is gone."""


@dataclass
class Asked:
    """A call of a tool, and where its answer goes."""

    name: str
    arguments: Mapping[str, Any]
    answer: Future[Answer]
    fetched: bool = False


class Desk:
    """`ask` and `wait` are for the outside agent's thread, the rest for the run's."""

    def __init__(self) -> None:
        self._asked: queue.Queue[Asked | None] = queue.Queue()
        self._pending: Asked | None = None
        self._doing = "starting"
        self._ended = ""
        self._lock = threading.Lock()

    # -- the outside agent's side

    def ask(self, name: str, arguments: Mapping[str, Any], answer_s: float = ANSWER_S) -> Answer:
        with self._lock:
            if self._pending is not None and not self._pending.fetched:
                stands = "is ready" if self._pending.answer.done() else "is still worked on"
                said = f"The answer to `{self._pending.name}` {stands}, and comes first: call `wait`."
                return Answer(said, worked=False)
            if self._ended:
                return Answer(f"The run has ended. {self._ended}", worked=False)
            asked = self._pending = Asked(name, arguments, Future())
            self._asked.put(asked)
        return self._answered(asked, answer_s)

    def wait(self, answer_s: float = ANSWER_S) -> Answer:
        """The answer to what was asked last."""
        pending = self._pending
        if pending is None:
            return Answer("Nothing was asked.", worked=False)
        return self._answered(pending, answer_s)

    def hang_up(self) -> None:
        self._asked.put(None)

    def _answered(self, asked: Asked, answer_s: float) -> Answer:
        try:
            answer = asked.answer.result(answer_s)
        except NotYet:
            doing = marked("data", self._doing)  # names what is judged, perhaps in the target's words
            return Answer(f"Still at work on `{asked.name}`; call `wait` for its answer.\n{doing}")
        with self._lock:
            asked.fetched = True
        return answer

    # -- the run's side

    def next_asked(self, within_s: float | None = None) -> Asked | None:
        """Blocks; None when nothing was asked in that time. Raises: HungUp."""
        try:
            found = self._asked.get(timeout=within_s)
        except queue.Empty:
            return None
        if found is None:
            raise HungUp
        return found

    @property
    def all_fetched(self) -> bool:
        return self._pending is None or self._pending.fetched

    def emit(self, event: Event) -> None:
        """As a `Progress`: what the run does meanwhile."""
        if isinstance(event, Judging):
            of = f", {event.done} of {event.of}" if event.of else ""
            self._doing = f"{event.what}: {event.phase}{of}"

    def end(self, said: str) -> None:
        """The run is over; whoever still waits is told so."""
        with self._lock:
            self._ended = said
            if self._pending is not None and not self._pending.answer.done():
                self._pending.answer.set_result(Answer(said))


def answering(asked: Asked, work: Callable[[], Answer]) -> None:
    """Answer what was asked; a fault of ours is told to both sides."""
    try:
        asked.answer.set_result(work())
    except BaseException as error:
        said = f"The run failed over this, which is not your fault:\n{marked('data', str(error))}"
        asked.answer.set_result(Answer(said, worked=False))
        raise
