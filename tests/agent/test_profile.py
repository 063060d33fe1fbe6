"""`agent profile` from the command line: in the terminal, as a page, a trace and JSON; the target stays as it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agent import cli
from agent.errors import WrongUsage
from tests.files import write_files
from tools.errors import NoSuchEntry, NoSuchTarget
from tools.integrity import hash_tree
from tools.profiler import page
from tools.profiler.result import Profile

TASK = Path(__file__).resolve().parents[2] / "evals" / "tasks" / "kb_mlp"

pytestmark = pytest.mark.usefixtures("forks")


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its own place for what the machine was measured to reach."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def profile(target: Path, *options: object) -> int:
    given = ["--target", target, "--entry", "bench.py", "--python", sys.executable, "--sandbox", "local", *options]
    return cli.main(["profile", *map(str, given)])


def test_a_target_is_profiled(cached: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, out = hash_tree(TASK), tmp_path / "out"
    out.mkdir()
    written = ("--html", out / "p.html", "--trace", out / "t.json", "--json", out / "p.json")
    assert profile(TASK, "--calls", 3, *written) == 0
    told = capsys.readouterr().out
    assert "Profile of bench.py on cpu, 3 calls" in told and "Primary bottleneck" in told
    assert all(len(line) <= 100 for line in told.splitlines() if str(tmp_path) not in line)
    found = Profile.model_validate_json((out / "p.json").read_text())
    assert (out / "p.html").read_text() == page.render(found)
    assert json.loads((out / "t.json").read_text())["traceEvents"]
    assert found.ceilings.source == "measured" and list(cached.rglob("ceilings-*.json"))
    assert hash_tree(TASK) == before


def test_a_target_that_cannot_be_is_told_as_by_a_run(
    cached: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert profile(tmp_path / "nowhere") == NoSuchTarget.exit_status
    assert profile(write_files(tmp_path / "empty", {"other.py": ""})) == NoSuchEntry.exit_status
    assert profile(TASK, "--image", "an-image") == WrongUsage.exit_status
    raises = write_files(tmp_path / "raises", {"bench.py": "raise RuntimeError('not today')"})
    assert profile(raises) == 43
    assert "not today" in capsys.readouterr().err
