"""The time a run may spend on looking for changes, shared out so that no step uses up what later ones need.

Without it a change of a few per cent, which takes up to 30 restarts to prove, would cost the run torch.compile.
Does not end what has begun, but for what compiles itself without an end: it is asked before an attempt, and at a look
that leaves it open.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tools.judging.worker import CHECK_TIMEOUT_S

LOOK_SHARE = 1 / 3  # of the time that is left: at most so much for one more look at one change
LOOK_S = 300.0  # and at most so long, however much is left: what compiles itself for half a minute would take ten
ATTEMPT_RESTARTS = 12  # what a change costs that is decided at the first look, its check included
CHECK_SHARE = 1 / 2  # of the whole budget: at most so long is waited for one build that compiles itself
LEAST_CHECK_S = 400.0  # max-autotune of 8 layers: 333 s on an H200 (evals/results/evidence/h200/20261125-134700.md)


def longest_check_s(minutes: float | None) -> float:
    """How many seconds one build that compiles itself is waited for: plain torch.compile, or a change in its check."""
    wanted = CHECK_TIMEOUT_S if minutes is None else CHECK_SHARE * 60 * minutes
    return max(LEAST_CHECK_S, min(CHECK_TIMEOUT_S, wanted))


@dataclass
class Budget:
    """`deadline` is on time.monotonic(); None means all the time there is."""

    deadline: float | None = None
    restart_s: float = 0.0  # what a restart of the original beside itself takes
    reserved_s: float = 0.0

    @classmethod
    def left(cls, minutes: float | None, spent_s: float) -> Budget:
        """What is left of so many minutes, when earlier commands have worked for so long on the same run."""
        return cls(None if minutes is None else time.monotonic() + 60 * minutes - spent_s)

    def reserve(self, attempts: int) -> None:
        """Keep the time for so many attempts in the steps still to come."""
        self.reserved_s = attempts * ATTEMPT_RESTARTS * self.restart_s

    def used_up(self) -> bool:
        return self._less_than(0.0)

    def hurried(self) -> bool:
        """Whether one more attempt would take what is reserved."""
        return self._less_than(self.reserved_s + ATTEMPT_RESTARTS * self.restart_s)

    def too_dear(self, seconds: float) -> bool:
        """Whether a look that takes so long would take too much of what is left, for one change."""
        return seconds > LOOK_S or self._less_than(self.reserved_s + seconds) or self._less_than(seconds / LOOK_SHARE)

    def _less_than(self, seconds: float) -> bool:
        return self.deadline is not None and time.monotonic() + seconds > self.deadline
