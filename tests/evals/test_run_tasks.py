"""Which tasks there are, and what is told of their runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent import environment
from agent.errors import WrongUsage
from evals.run_tasks import TASKS, Row, Table, _page, tasks
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
