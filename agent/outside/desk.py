"""Where a run and an outside agent meet: the agent's thread asks and waits, the run's thread does all the work.

A call that takes long is answered in parts: that it is in progress, and, to `wait`, its result. A second call is
refused until the answer to the first was fetched.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import Any

from agent.reporting.progress import Event, Judging, Progress
from tools.registry import Answer
from tools.registry.marks import marked

ADDRESS_FILE = "mcp.json"  # in a run's folder, for its owner alone: where it is served, and the token
ANSWER_S = 45.0  # clients give up on an answer after a minute


class HungUp(Exception):
    """The outside agent is gone."""


@dataclass
class PendingCall:
    """A call of a tool, and where its answer goes."""

    name: str
    arguments: Mapping[str, Any]
    answer: Future[Answer] = field(default_factory=Future)
    fetched: bool = False

    @contextlib.contextmanager
    def reporting_faults(self) -> Iterator[None]:
        """An internal error is the answer, and is raised too."""
        try:
            yield
        except BaseException as error:
            said = f"The run failed over this, which is not your fault:\n{marked('data', str(error))}"
            self.answer.set_result(Answer(said, worked=False))
            raise


class Desk(Progress):
    """`ask` and `wait` are for the outside agent's thread, the rest for the run's, whose progress is passed on."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress or Progress()
        self._asked: queue.Queue[PendingCall | None] = queue.Queue()
        self._pending: PendingCall | None = None
        self._doing, self._ended = "starting", ""
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
            self._pending = PendingCall(name, arguments)
            self._asked.put(self._pending)
        return self.wait(answer_s)

    def wait(self, answer_s: float = ANSWER_S) -> Answer:
        """The answer to the last call."""
        if (pending := self._pending) is None:
            return Answer("Nothing was asked.", worked=False)
        try:
            answer = pending.answer.result(answer_s)
        except NotYet:
            doing = marked("data", self._doing)  # names what is judged, perhaps in the target's words
            return Answer(f"Still at work on `{pending.name}`; call `wait` for its answer.\n{doing}")
        with self._lock:
            pending.fetched = True
        return answer

    def hang_up(self) -> None:
        self._asked.put(None)

    # -- the run's side

    def next_call(self, within_s: float | None = None) -> PendingCall | None:
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
        if isinstance(event, Judging):
            self._doing = event.words()[0].removeprefix("judging ")
        self._progress.emit(event)

    def end(self, said: str) -> None:
        """The run is over: the answer to a call without one, and to every later call."""
        with self._lock:
            self._ended = said
            if self._pending is not None and not self._pending.answer.done():
                self._pending.answer.set_result(Answer(said))
