"""The script that measures without Ratchet decides by the same rule, and sees a difference that is there."""

from __future__ import annotations

import json
import random
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.files import write_files
from tools.judging import accept

SCRIPT = Path(__file__).parents[2] / "skills" / "honest-benchmarking" / "scripts" / "paired.py"
SIDE = """
import os, pathlib

def build():
    calls = pathlib.Path(__file__).with_suffix(f".{os.getpid()}")
    def counted(numbers):
        with calls.open("a") as file:
            file.write("x")
        return sorted(numbers)
    return counted

def inputs(seed):
    return ([(seed * 7919 + n * 104729) % 65537 for n in range(4000)],)
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_it_decides_as_the_referee_does(script: dict[str, Any]) -> None:
    drawn = random.Random(1)
    for _ in range(3000):
        delta, shift = drawn.choice([0.01, 0.02, 0.05]), drawn.uniform(-0.05, 0.1)
        logs = [drawn.gauss(shift, 0.03) for _ in range(drawn.choice(list(accept.LOOKS)))]
        assert script["look"](logs, delta) == accept.look(logs, delta)
        mine, theirs = script["interval"](logs), accept.speedup_interval(logs)
        assert (mine["median"], mine["ci_low"], mine["ci_high"]) == (theirs.median, theirs.ci_low, theirs.ci_high)
        device = drawn.choice(list(accept.FLOOR))
        floor, why = script["noise_floor"](logs, device)
        found = accept.noise_floor(logs, device)  # type: ignore[arg-type]
        assert (floor, not why) == (found.delta, found.usable)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_time_that_it_gives_is_that_of_a_call(tmp_path: Path) -> None:
    write_files(tmp_path, {"base.py": SIDE, "other.py": SIDE})
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "base.py", "other.py"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    timed = [times for part in found["samples_ns"].values() for sides in part for times in sides]
    called = sorted(path.stat().st_size for path in tmp_path.glob("*.[0-9]*"))
    assert len(called) == len(timed), "a process for each side of each restart"
    assert all(count >= len(times) > 0 for count, times in zip(called, sorted(timed, key=len), strict=True))
