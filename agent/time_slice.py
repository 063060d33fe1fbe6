"""The time that one command may take of a run that goes on later: `--stop-after`.

At its end the command stops as Ctrl-C would stop it. Where an attempt would probably not be done by then, it stops
before it, so that less has to be done again. Refuses to say what a run may look for: that is the budget.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from types import FrameType

from agent.guard import Stopped


@dataclass
class TimeSlice:
    """`seconds` from now; None means all the time there is."""

    seconds: float | None = None
    longest_s: float = 0.0  # of the attempts that this command has judged so far
    _begun: float = field(default_factory=time.monotonic)
    _attempt_begun: float | None = None
    _armed: bool = False

    def start(self) -> None:
        """Stop when it is over, whatever is going on then. To be called in the main thread."""
        if self.seconds is not None:
            signal.signal(signal.SIGALRM, _over)
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def before_attempt(self) -> None:
        """It may take as long as the longest so far; the first of a command begins in any case. Raises: Stopped."""
        now = time.monotonic()
        if self.seconds is not None and self.longest_s and now - self._begun + self.longest_s > self.seconds:
            raise self._stopped()
        self._attempt_begun = now

    def before(self, seconds: float) -> None:
        """What takes so long and would be lost halfway is left to the next command, if it would not be done by the end.

        Not where that would have no more room either: a command takes part of its time to get going. Raises: Stopped.
        """
        late = self.seconds is not None and time.monotonic() - self._begun + seconds > self.seconds
        if late and self.seconds is not None and seconds <= self.seconds / 2:
            raise self._stopped()

    def _stopped(self) -> Stopped:
        """It is over: what is ended now is not interrupted by the alarm."""
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._armed = False
        return Stopped(signal.SIGALRM)

    def after_attempt(self) -> None:
        if self._attempt_begun is not None:
            self.longest_s = max(self.longest_s, time.monotonic() - self._attempt_begun)
            self._attempt_begun = None


def _over(signal_number: int, frame: FrameType | None) -> None:
    raise Stopped(signal_number)
