"""What the command line takes, and what it hands on."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent import __version__, cli, doctor, given, graph, run
from agent.config import RunConfig
from agent.errors import Declined, RunNotFound
from agent.outside import command
from agent.records import run_folder
from agent.reporting.progress import Progress
from agent.step_names import STEPS
from sandbox.errors import SandboxUnavailable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[RunConfig]:
    """The runs that were asked for instead of being walked."""
    asked: list[RunConfig] = []

    def start(config: RunConfig, progress: Progress) -> int:
        asked.append(config)
        return 0

    monkeypatch.setattr(run, "settle", lambda config, agree: config)
    monkeypatch.setattr(run, "start", start)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return asked


def test_a_run_is_asked_for_with_sensible_defaults(started: list[RunConfig], tmp_path: Path) -> None:
    assert cli.main(["run", "--target", "repo", "--entry", "bench.py"]) == 0
    (config,) = started
    assert (config.target, config.entry) == (tmp_path / "repo", "bench.py")
    assert config.runs_dir == tmp_path / ".ratchet" / "runs"
    assert (config.steps, config.threads, config.seed, config.sandbox) == (STEPS, 1, None, "auto")


def test_every_option_of_a_run_arrives(started: list[RunConfig], tmp_path: Path) -> None:
    for mount in ("repo", "other"):
        (tmp_path / mount).mkdir()
    given = (
        "run --target repo --entry bench.py --python /usr/bin/python3 --run-id mine --runs-dir runs --sandbox local "
        "--gpu 1 --mount repo --mount other --steps compile_model,audit_compute --time-limit 7.5 "
        "--budget-minutes 3 --threads 2 --seed 0 --record-clock clock.json --json --yes"
    )
    assert cli.main(given.split()) == 0
    assert started == [
        RunConfig(
            target=tmp_path / "repo",
            entry="bench.py",
            python=Path("/usr/bin/python3"),
            run_id="mine",
            runs_dir=tmp_path / "runs",
            sandbox="local",
            mounts=(tmp_path / "repo", tmp_path / "other"),
            gpu=1,
            steps=("audit_compute", "compile_model"),
            time_limit_s=7.5,
            budget_minutes=3,
            threads=2,
            seed=0,
            record_clock=tmp_path / "clock.json",
        )
    ]


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
    ("options", "said"),
    [
        (["--time-limit", "0"], "is not a positive number"),
        (["--time-limit", "inf"], "is not a positive number"),
        (["--threads", "0"], "is not 1 or more"),
        (["--record-clock", "a", "--replay-clock", "b"], "not allowed with"),
        (["--sandbox", "moon"], "invalid choice"),
    ],
)
def test_a_value_that_cannot_be_is_wrong_usage(
    options: list[str], said: str, started: list[RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "--target", "repo", "--entry", "bench.py", *options])
    assert (end.value.code, started) == (2, [])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "fly"], "--steps: no such step: fly"),
        (["--run-id", "../up"], "--run-id: "),
        (["--runs-dir", "repo/runs"], "lies in the target, which is never written to"),
        (["--replay", ".", "--reviewer", "cheap"], "--reviewer does nothing without --model"),
        (["--replay", ".", "--dollars", "1"], "--dollars does nothing without --model"),
        (["--replay", ".", "--model", "dear", "--dollars", "1"], "a run either asks a model or replays one"),
    ],
)
def test_a_value_that_only_we_can_check_is_wrong_usage_too(
    options: list[str], said: str, started: list[RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "--target", "repo", "--entry", "bench.py", *options]) == 2
    assert said in capsys.readouterr().err and not started


def test_a_run_started_inside_the_target_keeps_its_files_elsewhere(
    started: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "repo" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo" / "deep")
    assert cli.main(["run", "--target", "..", "--entry", "bench.py"]) == 0
    assert started[0].runs_dir == tmp_path / "state" / "ratchet" / "runs"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def nothing_contains(config: RunConfig, agree: Callable[[list[SandboxUnavailable]], bool]) -> RunConfig:
    if not agree([SandboxUnavailable("there is no engine", hint="Start it.")]):
        raise SandboxUnavailable("nothing here contains the target's code")
    return config


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", Declined.exit_status), ("", Declined.exit_status)])
def test_a_person_is_asked_before_code_runs_uncontained(
    answer: str, status: int, started: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "settle", nothing_contains)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert cli.main(["run", "--target", "repo", "--entry", "bench.py"]) == status
    assert len(started) == (0 if status else 1)


def test_where_nobody_can_be_asked_nothing_runs_uncontained_unless_it_was_said(
    started: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "settle", nothing_contains)
    assert cli.main(["run", "--target", "repo", "--entry", "bench.py"]) == SandboxUnavailable.exit_status
    assert not started
    assert cli.main(["run", "--target", "repo", "--entry", "bench.py", "--yes"]) == 0
    assert len(started) == 1


def test_a_resumed_run_is_found_by_its_id_or_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[Path] = []

    def resume(run_dir: Path, progress: Progress) -> int:
        resumed.append(run_dir)
        return 0

    monkeypatch.setattr(run, "resume", resume)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".ratchet" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    assert [cli.main(["resume", "mine"]), cli.main(["resume", str(folder)])] == [0, 0]
    assert resumed == [folder, folder]
    assert cli.main(["resume", "other"]) == RunNotFound.exit_status


def test_a_run_that_was_moved_is_served_from_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = list[Path]()

    def serve(progress: Progress, port: int | None, order: command.Order, ordered: object) -> int:
        served.append(order.config.run_dir)
        return 0

    monkeypatch.setattr(command, "serve", serve)
    config = RunConfig(target=tmp_path / "repo", entry="bench.py", runs_dir=tmp_path / "runs", run_id="mine")
    moved = run_folder.create(config).path.rename(tmp_path / "moved")
    assert cli.main(["resume", str(moved), "--mcp"]) == 0
    assert served == [moved]


def test_what_resumes_a_run_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert given.reference(tmp_path / ".ratchet" / "runs" / "mine") == "mine"
    assert given.reference(Path("/mnt/my runs/mine")) == "'/mnt/my runs/mine'"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("profile --target repo --entry b.py --html nowhere/p.html", "there is no folder nowhere to write to"),
        ("profile --target repo --entry b.py --trace nowhere/t.gz", "there is no folder nowhere to write to"),
        ("profile --target repo --entry b.py --json .", ". is a folder"),
        ("skills export --output file/all.json", "there is no folder file to write to"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_before_the_work(
    asked: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as end:
        cli.main(asked.split())
    assert end.value.code == 2 and said in capsys.readouterr().err


def test_the_graph_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(graph, "mermaid", lambda: "graph TD")
    assert (cli.main(["graph"]), capsys.readouterr().out) == (0, "graph TD\n")


def test_doctor_is_given_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(doctor, "check", lambda **given: seen.update(given) or 3)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert cli.main(["doctor", "--target", "repo", "--entry", "bench.py"]) == 3
    assert seen == {
        "target": Path("repo"),
        "entry": "bench.py",
        "python": Path(sys.executable),
        "provider": None,
        "image": None,
    }
    assert cli.main(["doctor", "--image", "an-image"]) == 3
    assert (seen["provider"], seen["image"]) == ("docker", "an-image")


@pytest.mark.parametrize("image", [(), ("--image", "an-image")], ids=["without an image", "in an image"])
def test_doctor_takes_the_interpreter_that_a_run_would(
    image: tuple[str, ...], started: list[RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(doctor, "check", lambda **given: seen.update(given) or 0)
    assert cli.main(["run", "--target", "repo", "--entry", "bench.py", *image]) == 0
    assert cli.main(["doctor", *image]) == 0
    assert seen["python"] == started[0].python
    assert (seen["python"] == Path("python3")) == bool(image)


@pytest.mark.parametrize("module", ["agent", "evals.cli"])
def test_the_version_is_told_by_a_real_process(module: str) -> None:
    code = f"import sys; from {module.removesuffix('.cli')}.cli import main; sys.exit(main(['--version']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"ratchet-agent {__version__}\n")


def test_python_m_agent_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "agent", "fly"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: agent ")
