"""The time budget of a run, divided so that no step uses the time that later steps need.

Without that, a change of a few per cent, which takes up to 30 restarts to prove, would cost the run torch.compile. The
budget is checked before an attempt and after an undecided look; nothing but an endless compilation is interrupted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tools.judging.worker import CHECK_TIMEOUT_S

LOOK_SHARE = 1 / 3  # of the remaining time: the most for one more look at one change
LOOK_S = 300.0  # the most for it however much remains: with compilations of half a minute, a look takes ten minutes
ATTEMPT_RESTARTS = 12  # cost of a change that is decided at the first look, with its check
CHECK_SHARE = 1 / 2  # of the whole budget: the longest wait for one build that compiles
LEAST_CHECK_S = 400.0  # max-autotune of 8 layers: 333 s on an H200 (evals/results/evidence/h200/20261125-134700.md)


def longest_check_s(minutes: float | None) -> float:
    """The longest wait, in seconds, for one build that compiles: plain torch.compile, or a change in its check."""
    wanted = CHECK_TIMEOUT_S if minutes is None else CHECK_SHARE * 60 * minutes
    return max(LEAST_CHECK_S, min(CHECK_TIMEOUT_S, wanted))


@dataclass
class Budget:
    """`deadline` is on time.monotonic(); None means no limit."""

    deadline: float | None = None
    restart_s: float = 0.0  # of one restart of the original against itself
    reserved_s: float = 0.0

    @classmethod
    def left(cls, minutes: float | None, spent_s: float) -> Budget:
        """What remains of a budget in minutes after earlier commands spent `spent_s` on the same run."""
        return cls(None if minutes is None else time.monotonic() + 60 * minutes - spent_s)

    def reserve(self, attempts: int) -> None:
        """Reserve the time for this number of attempts in later steps."""
        self.reserved_s = attempts * ATTEMPT_RESTARTS * self.restart_s

    def used_up(self) -> bool:
        return self._less_than(0.0)

    def hurried(self) -> bool:
        """Whether one more attempt would use reserved time."""
        return self._less_than(self.reserved_s + ATTEMPT_RESTARTS * self.restart_s)

    def too_dear(self, seconds: float) -> bool:
        """Whether a look of this length is too long for one change."""
        return seconds > LOOK_S or self._less_than(self.reserved_s + seconds) or self._less_than(seconds / LOOK_SHARE)

    def _less_than(self, seconds: float) -> bool:
        return self.deadline is not None and time.monotonic() + seconds > self.deadline
