"""Which tasks there are, and how a run of one becomes a row."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.errors import WrongUsage
from evals import results, run_tasks
from evals.run_tasks import TASKS, run, tasks
from tests.agent.reporting.sample_report import sample
from tools.candidate import Key


def test_a_folder_is_a_task_and_one_of_scripts_stands_for_all_of_them() -> None:
    every = tasks(())
    assert {"decoder", "hf_llama", "unchanged/llama", "unchanged/t5"} <= set(every) and "unchanged" not in every
    assert tasks(("decoder", "unchanged/bert")) == ["decoder", "unchanged/bert"]
    assert tasks(("unchanged",)) == [name for name in every if name.startswith("unchanged/")]
    assert len(tasks(("unchanged",))) == 8


@pytest.mark.parametrize("name", ["nothing", "unchanged/nothing", "decoder/model", "unchanged/"])
def test_a_task_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(WrongUsage, match="There is no task"):
        tasks((name,))


def test_every_task_says_what_it_is() -> None:
    for folder in {name.partition("/")[0] for name in tasks(())}:
        assert (TASKS / folder / "README.md").read_text().startswith(f"# {folder}\n")


def test_a_row_says_what_the_report_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sample()
    found = sample(kept=[found.kept[0].model_copy(update={"key": Key("fuse", "model.py Attention", "qkv")})])

    def agent(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        run_dir = Path(command[command.index("--runs-dir") + 1]) / "unchanged-t5"
        run_dir.mkdir()
        (run_dir / "report.json").write_text(found.model_dump_json())
        (run_dir / "whole.json").write_text('{"log_ratios": [0.1]}')
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(results, "commit", lambda: "0123456")
    monkeypatch.setattr(run_tasks.subprocess, "run", agent)
    assert run(("unchanged/t5",), tmp_path / "results") == 0
    (row,) = results.read(tmp_path / "results")
    assert (row.task, row.device, row.torch, row.commit) == ("unchanged/t5", "A CPU, 2 cores", "2.13.0+cpu", "0123456")
    assert (row.speedup, row.one_line) == (sample().speedup, "default") and row.kept == ["fuse model.py Attention qkv"]
    assert (tmp_path / "results" / row.samples).is_file()


def test_a_run_that_ended_without_a_report_is_a_row_without_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "commit", lambda: "0123456")
    monkeypatch.setattr(run_tasks.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 64))
    assert run(("decoder",), tmp_path / "results") == 1
    (row,) = results.read(tmp_path / "results")
    assert (row.outcome, row.samples, row.kept) == ("ended with exit status 64", "", [])
    assert "decoder: ended with exit status 64" in capsys.readouterr().out


def test_a_run_that_is_there_is_not_stored_as_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "runs" / "decoder").mkdir(parents=True)
    with pytest.raises(WrongUsage, match="there already"):
        run(("kb_mlp", "decoder"), tmp_path / "results", (), tmp_path / "runs")
    assert not (tmp_path / "results").exists()
