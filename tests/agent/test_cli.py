"""What the command line takes, and what it hands on."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import __version__, cli, doctor, given, run
from agent.config import RunConfig
from agent.errors import Declined, RunNotFound
from agent.outside import command
from agent.records import run_folder
from agent.reporting.progress import Progress
from agent.step_names import STEPS
from sandbox.choose import Agree
from sandbox.errors import SandboxUnavailable
from tests.agent.whole_runs import ROOT, Terminal

RUN = "run --target repo --entry bench.py"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What was asked for instead of being done: runs, and folders of runs to resume."""
    asked: list[Any] = []
    monkeypatch.setattr(run, "settle", lambda config, agree: config)
    for name in ("start", "resume"):
        monkeypatch.setattr(run, name, lambda config, progress: asked.append(config) or 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return asked


def test_a_run_is_asked_for_with_sensible_defaults(started: list[RunConfig], tmp_path: Path) -> None:
    assert cli.main(RUN.split()) == 0
    (config,) = started
    assert (config.target, config.entry) == (tmp_path / "repo", "bench.py")
    assert config.runs_dir == tmp_path / ".ratchet" / "runs"
    assert (config.steps, config.threads, config.seed, config.sandbox) == (STEPS, 1, None, "auto")


def test_every_option_of_a_run_arrives(started: list[RunConfig], tmp_path: Path) -> None:
    for mount in ("repo", "other"):
        (tmp_path / mount).mkdir()
    options = (
        "--python /usr/bin/python3 --run-id mine --runs-dir runs --sandbox local --gpu 1 --mount repo --mount other "
        "--steps compile_model,audit_compute --time-limit 7.5 --budget-minutes 3 --threads 2 --seed 0 "
        "--record-clock clock.json --json --yes"
    )
    assert cli.main(f"{RUN} {options}".split()) == 0
    (config,) = started
    assert config.model_dump(exclude_defaults=True) == {
        "target": tmp_path / "repo",
        "entry": "bench.py",
        "python": Path("/usr/bin/python3"),
        "run_id": "mine",
        "runs_dir": tmp_path / "runs",
        "sandbox": "local",
        "mounts": (tmp_path / "repo", tmp_path / "other"),
        "gpu": 1,
        "steps": ("audit_compute", "compile_model"),
        "time_limit_s": 7.5,
        "budget_minutes": 3,
        "threads": 2,
        "seed": 0,
        "record_clock": tmp_path / "clock.json",
    }


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Of a command and of those below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from options_of(command)
        else:
            yield action


def test_each_option_is_one_line_of_help() -> None:
    options = list(options_of(cli.build_parser()))
    assert len(options) > 100
    long = [option.dest for option in options if not 5 < len(option.help or "") <= 90]
    assert long == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (f"{RUN} --time-limit 0", "is not a positive number"),
        (f"{RUN} --time-limit inf", "is not a positive number"),
        (f"{RUN} --threads 0", "is not 1 or more"),
        (f"{RUN} --record-clock a --replay-clock b", "not allowed with"),
        (f"{RUN} --sandbox moon", "invalid choice"),
        (f"{RUN} --steps fly", "--steps: no such step: fly"),
        (f"{RUN} --run-id ../up", "--run-id: "),
        (f"{RUN} --runs-dir repo/runs", "lies in the target, which is never written to"),
        (f"{RUN} --replay . --reviewer cheap", "--reviewer does nothing without --model"),
        (f"{RUN} --replay . --dollars 1", "--dollars does nothing without --model"),
        (f"{RUN} --replay . --model dear --dollars 1", "a run either asks a model or replays one"),
        ("profile --target repo --entry b.py --html nowhere/p.html", "there is no folder nowhere to write to"),
        ("profile --target repo --entry b.py --json .", ". is a folder"),
        ("skills export --output file/all.json", "there is no folder file to write to"),
        ("image build moon", "invalid choice"),
        ("image build cpu --arg TORCH", "is not NAME=VALUE"),
        ("image build cpu --tag Upper:1", "is no name for an image"),
        ("image build cpu --tag no-tag", "is no name for an image"),
        ("image build cpu --arg UNHEARD=of", "there is no argument UNHEARD"),
        ("image build --for nowhere", "there is no folder nowhere"),
    ],
)
def test_a_value_that_cannot_be_is_wrong_usage_before_any_work(
    asked: str, said: str, started: list[RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    try:
        status: object = cli.main(asked.split())
    except SystemExit as end:  # of argparse
        status = end.code
    assert (status, started) == (2, [])
    assert said in capsys.readouterr().err


def test_a_run_started_inside_the_target_keeps_its_files_elsewhere(
    started: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "repo" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo" / "deep")
    assert cli.main(["run", "--target", "..", "--entry", "bench.py"]) == 0
    assert started[0].runs_dir == tmp_path / "state" / "ratchet" / "runs"


def nothing_contains(config: RunConfig, agree: Agree) -> RunConfig:
    if not agree([SandboxUnavailable("there is no engine", hint="Start it.")]):
        raise SandboxUnavailable("nothing here contains the target's code")
    return config


@pytest.mark.parametrize(
    ("terminal", "options", "status"),
    [
        (Terminal("y\n"), "", 0),
        (Terminal("n\n"), "", Declined.exit_status),
        (Terminal(""), "", Declined.exit_status),
        (io.StringIO(), "", SandboxUnavailable.exit_status),
        (io.StringIO(), " --yes", 0),
    ],
)
def test_code_runs_uncontained_only_where_a_person_agrees(
    terminal: io.StringIO, options: str, status: int, started: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "settle", nothing_contains)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert cli.main(f"{RUN}{options}".split()) == status
    assert len(started) == (0 if status else 1)


def test_a_resumed_run_is_found_by_its_id_or_its_folder(started: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / ".ratchet" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    assert [cli.main(["resume", "mine"]), cli.main(["resume", str(folder)])] == [0, 0]
    assert started == [folder, folder]
    assert cli.main(["resume", "other"]) == RunNotFound.exit_status
    assert given.reference(folder) == "mine", "what resumes it can be pasted"
    assert given.reference(Path("/mnt/my runs/mine")) == "'/mnt/my runs/mine'"


def test_a_run_that_was_moved_is_served_from_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = list[Path]()

    def serve(progress: Progress, port: int | None, order: command.DrivenRun, ordered: object) -> int:
        served.append(order.config.run_dir)
        return 0

    monkeypatch.setattr(command, "serve", serve)
    config = RunConfig(target=tmp_path / "repo", entry="bench.py", runs_dir=tmp_path / "runs", run_id="mine")
    moved = run_folder.create(config).path.rename(tmp_path / "moved")
    assert cli.main(["resume", str(moved), "--mcp"]) == 0
    assert served == [moved]


@pytest.mark.parametrize("image", ["", " --image an-image"], ids=["without an image", "in an image"])
def test_doctor_looks_at_what_a_run_would_use(
    image: str, started: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(doctor, "check", lambda **given: seen.update(given) or 3)
    assert cli.main(f"{RUN}{image}".split()) == 0
    assert cli.main(f"doctor --target repo --entry bench.py{image}".split()) == 3
    python = started[0].python
    assert (python == Path("python3")) == bool(image)
    where = {"provider": "docker", "image": "an-image"} if image else {"provider": None, "image": None}
    assert seen == {"target": Path("repo"), "entry": "bench.py", "python": python, **where}


def test_the_same_command_is_there_as_python_m(capfd: pytest.CaptureFixture[str]) -> None:
    for module, prog in (("agent", "agent"), ("evals", "evals")):
        assert subprocess.run([sys.executable, "-m", module, "--version"], cwd=ROOT, check=False).returncode == 0
        assert subprocess.run([sys.executable, "-m", module, "fly"], cwd=ROOT, check=False).returncode == 2
        out, err = capfd.readouterr()
        assert out == f"ratchet-agent {__version__}\n" and err.startswith(f"usage: {prog} ")


def test_help_states_the_defaults_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    defaults = {name: field.default for name, field in RunConfig.model_fields.items()}
    for name, says in (
        ("time_limit_s", "start of the entry, in seconds (default: {:.0f})"),
        ("threads", "cores of a timed process (default: {})"),
        ("sandbox", "which contains nothing (default: {})"),
        ("attempts", "judge in one step (default: {})"),
        ("tokens", "tokens to spend on models (default: {})"),
        ("tool_calls", "for one candidate (default: {})"),
    ):
        assert says.format(defaults[name]) in told
