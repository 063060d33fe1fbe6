"""The time budget of a run: it bounds the whole command, and no step uses the time that later steps need.

It is checked before an attempt and after an undecided look. As soon as something is proven, time is kept back for the
final measurement. What runs all the same when the time is over is ended as Ctrl-C would end it, and what is proven
until then is handed over.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from tools.judging import accept
from tools.judging.worker import CHECK_TIMEOUT_S

USED_UP = "the time budget was used up"
FOR_COMPILING = "what is left of the time budget is kept for compiling"
LOOK_SHARE = 1 / 3  # of the remaining time: the most for one more look at one change
LAST_SHARE = 3 / 4  # the same where nothing is proven and nothing else is to come
LIKELY_SHARE = 0.7  # of what is kept for compiling, if that is enough: stays where each restart of a change has gained
LOOK_S = 300.0  # the most for it however much remains: with compilations of half a minute, a look takes ten minutes
ATTEMPT_RESTARTS = 5  # cost of a change that is decided at the first look, with its check
FINAL_RESTARTS = 5  # cost of a final measurement in a hurry: three restarts, and what goes with them
START_SHARE = 0.4  # of the whole budget: after so much, what is measured at the start is not made any better
# kept for compiling where other changes are tried before it: a check, and restarts of what is not compiled, which take
# two fifths as long (seen: 1.9 to 2.7 times), for two looks and the final measurement; at most a share of the budget
COMPILING_S, COMPILING_RESTARTS, COMPILING_SHARE = 60.0, 20, 1 / 2
WAIT_SHARE = 1 / 5  # of the whole budget: the longest wait for one build that compiles, or for one start


class TimeIsUp(KeyboardInterrupt):
    """The budget is: whatever runs is ended as Ctrl-C would end it."""


def _time_is_up(signal_number: int, frame: FrameType | None) -> None:
    raise TimeIsUp


def longest_wait_s(minutes: float | None, most_s: float = CHECK_TIMEOUT_S) -> float:
    """The longest single wait, in seconds, for plain torch.compile, a change in its check, a start of the entry."""
    return most_s if minutes is None else min(most_s, WAIT_SHARE * 60 * minutes)


@dataclass
class Budget:
    """`deadline` is on time.monotonic(); None means no limit."""

    deadline: float | None = None
    total_s: float = 0.0
    restart_s: float = 0.0  # a fifth of what a change takes to be judged: of one restart of what is judged, or more
    known_restart_s: float = 0.0  # of one restart, as it was measured
    final_restart_s: float = 0.0  # of one of the final measurement
    reserved_s: float = 0.0
    kept_back_s: float = 0.0  # for the final measurement
    proven: bool = False  # something is
    for_compiling_s: float = 0.0  # until that begins
    compiling_is_short: bool = False  # it is less than compiling is expected to take

    @classmethod
    def left(cls, minutes: float | None, spent_s: float, begun: float | None = None) -> Budget:
        """What remains of a budget in minutes after earlier commands spent `spent_s` on the same run; this one began
        at `begun`, or now.
        """
        begun = time.monotonic() if begun is None else begun
        return cls() if minutes is None else cls(begun + 60 * minutes - spent_s, 60 * minutes)

    def know(self, restart_s: float, final_restart_s: float = 0.0, *, compiles_later: bool = False) -> None:
        """How long a restart takes here, and one of the final measurement where that is more. `compiles_later`: time is
        kept for that, since nobody knows yet how long it takes.
        """
        self.restart_s = self.known_restart_s = restart_s
        self.final_restart_s = final_restart_s or restart_s
        wanted_s = COMPILING_S + COMPILING_RESTARTS * restart_s
        most_s = COMPILING_SHARE * self.total_s
        self.for_compiling_s = min(wanted_s, most_s) if compiles_later else 0.0
        self.compiling_is_short = compiles_later and wanted_s > most_s

    def begin_compiling(self) -> None:
        """From now on no time is kept for it."""
        self.for_compiling_s, self.compiling_is_short = 0.0, False

    def learn(self, check_s: float) -> None:
        """How long a change that is compiled took to be checked."""
        attempt_s = check_s + accept.FIRST_LOOK * self.known_restart_s
        self.restart_s = max(self.restart_s, attempt_s / ATTEMPT_RESTARTS)

    def keep_back(self, restart_s: float = 0.0) -> None:
        """For the final measurement, once something is proven: a restart of it takes at least so long."""
        self.proven = True
        self.kept_back_s = max(self.kept_back_s, FINAL_RESTARTS * max(restart_s, self.final_restart_s))

    def finish(self) -> None:
        """From now on nothing is kept back."""
        self.reserved_s = self.kept_back_s = self.for_compiling_s = 0.0

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raises: TimeIsUp in the main thread, when it is."""
        main = threading.main_thread()
        if self.deadline is None or threading.current_thread() is not main or main.ident is None:
            yield
            return
        # a signal, because it ends whatever is waited for; SIGINT is ignored in what a shell runs in the background
        before = signal.signal(signal.SIGUSR1, _time_is_up)
        left_s = max(0.0, self.deadline - time.monotonic())
        timer = threading.Timer(left_s, signal.pthread_kill, (main.ident, signal.SIGUSR1))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            signal.signal(signal.SIGUSR1, before)

    def reserve(self, attempts: int) -> None:
        """Reserve the time for this number of attempts in later steps."""
        self.reserved_s = attempts * ATTEMPT_RESTARTS * self.restart_s

    def used_up(self, attempts: int = 0) -> str:
        """Why nothing more is begun; empty where something may be, and so many attempts have time to end."""
        wanted_s = attempts * ATTEMPT_RESTARTS * self.restart_s
        if not self._less_than(wanted_s):
            return ""
        return FOR_COMPILING if not self._less_than(wanted_s - self.for_compiling_s) else USED_UP

    def hurried(self) -> bool:
        """Whether one more attempt would use reserved time."""
        return self._less_than(self.reserved_s + ATTEMPT_RESTARTS * self.restart_s)

    def tight(self, attempts: int) -> bool:
        """Whether there may not be time for so many attempts, each looked at twice."""
        return self._less_than(attempts * (ATTEMPT_RESTARTS + accept.FIRST_LOOK) * self.restart_s)

    def allows(self, seconds: float) -> bool:
        """Whether so much is left beside what is kept back."""
        return not self._less_than(seconds)

    def too_dear(self, seconds: float, likely: bool = False) -> bool:
        """Whether a look of this length is too long for one change; at the start, for the original. A change that is
        `likely` to be kept is worth more than others that are yet to be tried, but not than compiling.
        """
        if not self.restart_s and self.deadline is not None:
            return self._less_than(seconds + (1 - START_SHARE) * self.total_s)
        if likely and not self.compiling_is_short:
            return seconds > LOOK_S or self._less_than(seconds - (1 - LIKELY_SHARE) * self.for_compiling_s)
        share = LOOK_SHARE if self.reserved_s or self.proven else LAST_SHARE
        return seconds > LOOK_S or self._less_than(self.reserved_s + seconds) or self._less_than(seconds / share)

    def _less_than(self, seconds: float) -> bool:
        return self.deadline is not None and self._ready_s() + seconds > self.deadline

    def _ready_s(self) -> float:
        """When a run that ended now would be over, with what time is kept for."""
        return time.monotonic() + self.kept_back_s + self.for_compiling_s
