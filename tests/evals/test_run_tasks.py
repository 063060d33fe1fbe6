"""Which tasks there are, and what is told of their runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent import environment
from agent.config import RunConfig
from agent.errors import WrongUsage
from agent.records import run_folder
from evals.run_tasks import TASKS, How, Row, Table, _may_go_on, _new_run, _page, run, tasks
from tests.agent.reporting.sample_report import sample


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


def test_the_page_says_what_each_step_found() -> None:
    found = sample()
    row = Row(task="one", outcome="kept", wall_s=1.0, exit_status=0, report=found.model_dump(mode="json"))
    table = Table(date=datetime.now(UTC), command=["evals"], environment=environment.describe(), rows=[row])
    told = table.steps()
    for step in found.steps:
        assert (f"| one | {step.name} | {step.kept} of {step.attempts} |" in told) == (
            bool(step.attempts) or step.status != "done"
        )


def test_the_page_names_the_gpu_that_it_was_measured_on() -> None:
    told = sample().model_dump(mode="json")
    row = Row(task="one", outcome="kept", wall_s=1.0, exit_status=0, report=told)
    table = Table(date=datetime.now(UTC), command=["evals"], environment=environment.describe(), rows=[row])
    cpu = f"on {table.environment.host.cpu_model}, "
    assert cpu in _page(table)
    told["environment"]["guest"]["gpu_name"] = "A GPU"
    assert f"on A GPU, {cpu.removeprefix('on ')}" in _page(table)
    row.report = None
    assert cpu in _page(table)


def test_what_a_model_names_its_change_is_one_cell() -> None:
    row = Row(task="one", outcome="kept", kept=["fuse | gate\nand up", "more"], wall_s=1.0, exit_status=0)
    table = Table(date=datetime.now(UTC), command=["evals"], environment=environment.describe(), rows=[row])
    assert "| one | fuse \\| gate and up; more | – |" in table.markdown()


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run of the task `decoder` that stopped."""
    config = RunConfig(target=tmp_path / "target", entry="bench.py", runs_dir=tmp_path / "runs", run_id="decoder")
    asked = _new_run("decoder", "decoder", ("--budget-minutes", "7"))
    return run_folder.create(config, ["agent", *asked, "--runs-dir", str(tmp_path / "runs"), "--stop-after", "9m"]).path


def test_a_finished_run_is_not_stored_as_a_new_one(begun: Path, tmp_path: Path) -> None:
    (begun / "report.json").touch()
    with pytest.raises(WrongUsage, match="is finished"):
        run(("kb_mlp", "decoder"), tmp_path / "results", How(("--budget-minutes", "7"), begun.parent))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("options", [(), ("--budget-minutes", "8"), ("--budget-minutes", "7", "--sandbox", "local")])
def test_a_run_goes_on_with_the_options_that_it_was_begun_with(options: tuple[str, ...], begun: Path) -> None:
    _may_go_on("decoder", How(("--budget-minutes", "7"), begun.parent, "5m"))
    _may_go_on("kb_mlp", How(options, begun.parent))
    with pytest.raises(WrongUsage, match="--budget-minutes 7"):
        _may_go_on("decoder", How(options, begun.parent))
