"""The agent may run at any niceness; what counts is that no worker changes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forking import ADDRESS

ROOT = Path(__file__).parents[3]
UNDER_NICE = """
import sys
from pathlib import Path
from tests.evals.arena import Arena
from tools.judging.measure import ComparisonRequest

arena = Arena.open(Path(sys.argv[1]), sys.executable)
try:
    request = ComparisonRequest("aa", arena.incumbent, {"candidate": arena.incumbent}, bool)
    print(repr(arena.referee.clock.compare(request).only.refused))
finally:
    arena.referee.close()
"""


@pytest.mark.slow
def test_it_times_under_nice(tmp_path: Path) -> None:
    command = ["nice", "-n", "10", sys.executable, "-c", UNDER_NICE, str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if name != ADDRESS}  # its own workers are as nice
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "''\n"), done.stderr
