"""A run killed at any moment goes on where it was: the same stack, nothing accepted lost, nothing left running."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.records.ledger import Ledger
from agent.reporting import report
from agent.repository.stack import Stack
from tests.agent.left_running import left_running_for_good
from tests.agent.synthetic_clock import RANDOM_TITLES
from tests.agent.whole_runs import ROOT, process, run_options
from tools.candidate import Key
from tools.integrity import hash_tree

TASK = ROOT / "evals" / "tasks" / "kb_mlp"
LOG = Path(tempfile.mkdtemp(prefix="ratchet-kill-")) / "stderr"
STEPS = "profile_baseline,audit_compute,fuse_projections,compose_stack"
SEED = 39  # of the moments
STARTED_SLOWDOWN = 3  # how much longer a run takes whose workers are started rather than forked


def agent(*arguments: str, forks: bool = True, titles: str = "random") -> subprocess.Popen[bytes]:
    environment = {RANDOM_TITLES: "1"} if titles == "random" else {}
    started = process(*arguments, forks=forks, **environment)
    with LOG.open("ab") as log:  # a file, not a pipe that nobody may read in time
        return subprocess.Popen(**started, stdout=subprocess.DEVNULL, stderr=log)


def begin(target: Path, runs: Path, *, forks: bool = True, titles: str = "random") -> subprocess.Popen[bytes]:
    return agent("run", *run_options(target, runs), "--steps", STEPS, forks=forks, titles=titles)


def resume(runs: Path, *, forks: bool = True) -> subprocess.Popen[bytes]:
    return agent("resume", "one", "--runs-dir", str(runs), forks=forks)


def result(run_dir: Path) -> tuple[list[tuple[Key, str]], list[str], str]:
    """What was tried with its verdicts, the attempts on the stack in order, and the source they lead to."""
    stack = Stack.open(run_dir / "stack")
    tried = [(row.key, row.verdict) for row in Ledger.read(run_dir / "ledger.jsonl")]
    return tried, [commit.attempt_id for commit in stack.commits()], stack.diff(stack.top, since=stack.base)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The run directory of a run nobody disturbed, and how long it took."""
    folder = tmp_path_factory.mktemp("undisturbed")
    target = shutil.copytree(TASK, folder / "target")
    begun = time.monotonic()
    running = begin(target, folder / "runs", titles="as they are")
    assert running.wait(300) == 0, LOG.read_text()
    return folder / "runs" / "one", time.monotonic() - begun


def test_an_undisturbed_run_has_something_to_lose_and_resumes_to_its_report(undisturbed: tuple[Path, float]) -> None:
    run_dir, _ = undisturbed
    _, stacked, _ = result(run_dir)
    found = report.read(run_dir)
    assert len(stacked) >= 2 and [kept.attempt for kept in found.kept] == stacked
    assert found.speedup is not None and found.speedup.ci_low > 1.3
    before = (run_dir / "report.json").read_bytes()
    assert resume(run_dir.parent).wait(60) == 0
    assert (run_dir / "report.json").read_bytes() == before


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("moments", "forks"),
    [pytest.param(3, True, id="three"), pytest.param(10, False, id="ten, each worker started", marks=pytest.mark.slow)],
)
def test_kill_9_at_any_moment_loses_nothing(
    tmp_path: Path, undisturbed: tuple[Path, float], moments: int, forks: bool
) -> None:
    reference, duration_s = undisturbed[0], undisturbed[1] * (1 if forks else STARTED_SLOWDOWN)
    target = shutil.copytree(TASK, tmp_path / "target")
    before, run_dir = hash_tree(target), tmp_path / "runs" / "one"
    rng, kills, kept = random.Random(SEED), 0, 0
    running = begin(target, tmp_path / "runs", forks=forks)
    while True:
        # later kills come later, so that the whole length of the run is hit, however often it starts again
        try:
            running.wait(rng.uniform(0.3, 0.35 + duration_s * (0.3 + kills / moments)) if kills < moments else 300)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
            kills += 1
            assert left_running_for_good(tmp_path) == [], f"after kill {kills}"
            now_kept = accepted(run_dir)
            assert now_kept >= kept, "an accepted change was lost"
            kept = now_kept
            started = (run_dir / "run.json").exists()
            running = resume(run_dir.parent, forks=forks) if started else begin(target, run_dir.parent, forks=forks)
            continue
        assert running.returncode == 0, LOG.read_text()
        break
    assert kills == moments or (run_dir / "report.json").exists()
    assert result(run_dir) == result(reference)
    assert hash_tree(target) == before
    assert not (run_dir / "work").exists()
    ids = [row.attempt_id for row in Ledger.open(run_dir / "ledger.jsonl").rows]
    assert len(ids) == len(set(ids)), "no attempt is judged twice"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "runs"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk of its own")
def test_a_disk_that_fills_up_ends_the_run_and_loses_nothing(
    tmp_path: Path, small_disk: Path, undisturbed: tuple[Path, float]
) -> None:
    target, runs = shutil.copytree(TASK, tmp_path / "target"), small_disk
    run_dir = runs / "one"
    running = begin(target, runs)
    try:
        while accepted(run_dir) < 1 and running.poll() is None:
            time.sleep(0.05)
        fill(runs / "filler")
        assert running.wait(120) == 32, LOG.read_text()
        assert "disk is full" in LOG.read_text().lower()
        assert left_running_for_good(tmp_path) == []
        kept = accepted(run_dir)
        assert kept >= 1
        (runs / "filler").unlink()
        assert resume(runs).wait(200) == 0, LOG.read_text()
        assert accepted(run_dir) >= kept
        assert result(run_dir) == result(undisturbed[0])
    finally:
        running.kill()


def accepted(run_dir: Path) -> int:
    file = run_dir / "ledger.jsonl"
    return sum(row.verdict == "kept" for row in Ledger.open(file).rows) if file.exists() else 0


def wait_for(happened: Callable[[], bool], most_s: float = 120.0) -> None:
    deadline = time.monotonic() + most_s
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.1)


def fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(1 << 16))


def test_a_stopped_run_leaves_nothing_running_and_goes_on(tmp_path: Path, undisturbed: tuple[Path, float]) -> None:
    """Only one process works on it; SIGTERM ends that one, and `agent resume` comes to the same result."""
    target = shutil.copytree(TASK, tmp_path / "target")
    first, run_dir = begin(target, tmp_path / "runs"), tmp_path / "runs" / "one"
    try:
        wait_for(lambda: (run_dir / "run.json").exists())
        assert resume(tmp_path / "runs").wait(60) == 52, LOG.read_text()  # while the first has most of its work to do
        wait_for(lambda: accepted(run_dir) > 0 and bool(Stack.open(run_dir / "stack").commits()))
    finally:
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 143
    assert left_running_for_good(tmp_path) == []
    assert "interrupted; `agent resume" in LOG.read_text()
    assert re.search(r"\d changes? proven so far: ", LOG.read_text())
    assert (run_dir / "ratchet.patch").read_bytes().startswith(b"From ")
    assert resume(tmp_path / "runs").wait(300) == 0, LOG.read_text()
    assert result(run_dir) == result(undisturbed[0])
