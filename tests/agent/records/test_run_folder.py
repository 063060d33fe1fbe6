"""A run on disk: made once, locked by whoever works on it, and listed for what it is."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from agent.config import RunConfig
from agent.errors import RunDamaged, RunExists, RunInUse, RunNotFound
from agent.records import run_folder
from agent.records.run_folder import FolderUnusable
from agent.reporting import list_runs, report_text
from tests.agent.reporting.sample_report import sample

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return RunConfig(target=tmp_path / "target", entry="bench.py", runs_dir=tmp_path / "runs", run_id="mine")


def test_a_new_run_keeps_what_was_asked_for_and_a_second_of_that_name_is_refused(config: RunConfig) -> None:
    folder = run_folder.create(config, ["agent", "run"])
    kept = run_folder.find("mine", [config.runs_dir]).read()
    assert (kept.config, kept.command, folder.status()) == (config, ["agent", "run"], "interrupted")
    with pytest.raises(RunExists):
        run_folder.create(config)


def test_a_kill_while_a_run_is_made_leaves_its_name_free(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(run_folder, "write_atomically", Mock(side_effect=KeyboardInterrupt))
        killed.setattr(run_folder.shutil, "rmtree", Mock())
        run_folder.create(config)
    assert list(config.runs_dir.iterdir()) and not run_folder.every([config.runs_dir])
    folder = run_folder.create(config)
    assert [found.run_id for found in run_folder.every([config.runs_dir])] == [folder.run_id]


def test_a_run_that_another_process_holds_is_in_use_until_that_process_dies(config: RunConfig) -> None:
    folder = run_folder.create(config)
    code = f"""
import sys
from pathlib import Path
from agent.records.run_folder import RunFolder
with RunFolder(Path({str(folder.path)!r})).locked():
    print("held", flush=True)
    sys.stdin.read()
"""
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, text=True, **pipes) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert folder.status() == "running"
        with pytest.raises(RunInUse), folder.locked():
            pass
        holder.kill()
    assert folder.status() == "interrupted"
    with folder.locked():
        pass


def test_who_only_looks_for_a_moment_keeps_nobody_from_a_run(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder.create(config)
    looking = os.open(folder.path / "run.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_EX)
    monkeypatch.setattr(run_folder.time, "sleep", lambda seconds: os.close(looking))
    with folder.locked():
        assert folder.status() == "running"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "Invalid JSON"),
        ("not JSON", "Invalid JSON"),
        ("{}", "format: Field required"),
        ('{"format": 3, "version": "0.2.0", "config": {"target": "t", "entry": "e"}}', "command: Field required"),
    ],
)
def test_a_file_that_is_not_ours_is_damaged_and_says_in_what(text: str, wrong: str, config: RunConfig) -> None:
    folder = run_folder.create(config)
    (folder.path / "run.json").write_text(text)
    with pytest.raises(RunDamaged, match=rf"run\.json cannot be read: {wrong}"):
        folder.read()
    assert folder.status() == "damaged"


def test_a_run_whose_mount_is_not_there_today_can_be_read(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    asked = RunConfig.model_validate({**config.model_dump(), "mounts": (tmp_path / "weights",)})
    folder = run_folder.create(asked)
    (tmp_path / "weights").rmdir()
    assert (folder.read().config, folder.status()) == (asked, "interrupted")


def test_a_folder_that_cannot_hold_runs_or_no_locks_is_said_with_what_to_do(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "file").touch()
    for below in ("file", "file/runs"):
        with pytest.raises(FolderUnusable, match="cannot hold runs") as caught:
            run_folder.create(config.model_copy(update={"runs_dir": tmp_path / below}))
        assert "--runs-dir" in caught.value.hint
    folder = run_folder.create(config)
    with pytest.raises(BlockingIOError), folder.locked():
        raise BlockingIOError  # of something else, not of a second holder
    monkeypatch.setattr(run_folder.fcntl, "flock", refuse)  # as on some file systems
    assert folder.status() == "damaged"
    with pytest.raises(FolderUnusable, match="cannot be locked") as caught, folder.locked():
        pass
    assert "--runs-dir" in caught.value.hint
    ((name, status, *_),) = (line.split() for line in list_runs.lines([config.runs_dir]))
    assert (name, status) == ("mine", "damaged")


@pytest.mark.parametrize("name", ["mine", "x" * 5000])
def test_no_such_run_says_where_it_looked(name: str, tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match=str(tmp_path)):
        run_folder.find(name, [tmp_path])


def test_the_list_tells_every_run_and_what_came_of_it(config: RunConfig) -> None:
    run_folder.create(config)
    finished = run_folder.create(config.model_copy(update={"run_id": "other"}))
    report_text.write(sample(), finished.path)
    (config.runs_dir / "broken").mkdir()
    lines = list(list_runs.lines([config.runs_dir]))
    told = [["broken", "damaged"], ["mine", "interrupted"], ["other", "finished"]]
    assert [line.split()[:2] for line in lines] == told
    assert list((config.runs_dir / "broken").iterdir()) == [], "nothing is written into what is no run"
    assert lines[2].endswith("1 change kept, 1.32× (1.28 to 1.37)")
    assert list(list_runs.lines([config.target])) == [f"no runs in {config.target}"]
