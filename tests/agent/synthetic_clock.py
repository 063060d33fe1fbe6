"""`agent` with a clock that times nothing: a call costs what the source of its tree says. Also a script.

So a run takes seconds where real timing takes minutes, and two runs of the same target judge alike. Workers are forked
from a warm process, and installed packages are not watched, unless this is a script that was given no address of such a
process. The checks, the graph, the ledger and the stack are real.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from agent import baselines, cli, run
from agent.playbook import drafts
from tests import forking
from tests.agent.random_titles import random_titles
from tools.judging.comparison import Comparison
from tools.judging.measure import ComparisonRequest, Fill, Measured
from tools.judging.worker import Build

# what a call takes less of for each thing found in the source
FACTORS = {"PackedLinear(": 0.8, ".clone()": 1.25, ".contiguous()": 1.15}
COMPILED = "SYNTHETIC_COMPILED"  # what a call takes of it under torch.compile, which is compared with where it is set
NO_GAIN = "SYNTHETIC_NO_GAIN"  # words: a comparison made for a purpose that has them finds no difference
# words, and a number: in one with a purpose that has them the machine changes its pace, and the gain is counted so many
# times lower; without a number a guard fires on the original, and nothing is measured
UNSTEADY, TAKEN = "SYNTHETIC_UNSTEADY", "SYNTHETIC_TAKEN"
IS_UP = "SYNTHETIC_IS_UP"  # words: when one for a purpose that has them begins, the budget of the run is used up
RANDOM_TITLES = "RANDOM_TITLES"  # set, titles are random strings


class SyntheticClock:
    """A `Clock` whose times are a function of the trees."""

    def compare(self, request: ComparisonRequest) -> Measured:
        return Measured({name: self.comparison(request, name) for name in request.candidates})

    def comparison(self, request: ComparisonRequest, name: str) -> Comparison:
        if os.environ.get(IS_UP, "none") in request.purpose:
            signal.raise_signal(signal.SIGUSR1)
        found = request.blank(name)
        if TAKEN not in os.environ and os.environ.get(UNSTEADY, "none") in request.purpose:
            found.unsettled = "a guard fired on what is to be improved"
            return found
        before, after = cost_us(request.incumbent), cost_us(request.candidates[name])
        while not found.case_log_ratios or not request.enough(found):
            jitter = 0.001 * math.sin(len(found.case_log_ratios))
            gain = 0.0 if os.environ.get(NO_GAIN, "none") in request.purpose else math.log(before / after)
            found.case_log_ratios.append([gain + jitter])
            found.case_total_log_ratios.append([gain + jitter])
            found.incumbent_us.append([before])
            found.candidate_us.append([after * math.exp(-jitter)])
        if os.environ.get(UNSTEADY, "none") in request.purpose:
            found.unsettled = "the machine changes its pace"
            found.pace_us = [before / float(os.environ[TAKEN])]
        return found

    def know(self, found: Comparison) -> None:
        """Times are a function of the trees."""

    def filled(self, build: Build, fill: Fill) -> Build:
        return fill(build)

    def close(self) -> None:
        """Nothing was started."""


def cost_us(build: Build) -> float:
    source = "".join(path.read_text() for path in sorted(Path(build.tree).glob("*.py")))
    compiled = float(os.environ.get(COMPILED, "1")) if "self.compile(" in source else 1.0
    plain = 0.5 if build.compile_options is not None else 1.0
    return 1000.0 * plain * compiled * math.prod(factor for text, factor in FACTORS.items() if text in source)


@contextlib.contextmanager
def synthetic(*, forks: bool = True) -> Iterator[None]:
    """While it lasts, runs of this process have this clock, and by `forks` the sandbox of `tests/forking.py`."""
    compiled = COMPILED in os.environ
    with contextlib.ExitStack() as patched:
        patched.enter_context(mock.patch.object(run, "_clock", lambda config, live: SyntheticClock()))
        patched.enter_context(mock.patch.object(baselines, "MODES", {"cpu": {"default": {}} if compiled else {}}))
        patched.enter_context(mock.patch.object(drafts, "WORTH_TIMING", 0.0))  # profiles are real, and scatter
        if RANDOM_TITLES in os.environ:
            patched.enter_context(random_titles())
        if forks:
            patched.enter_context(forking.chosen())
        yield


def main(argv: Sequence[str] | None = None) -> int:
    with synthetic(forks=forking.ADDRESS in os.environ):
        return cli.main(argv)


if __name__ == "__main__":
    sys.exit(main())
