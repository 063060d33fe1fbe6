"""What is done on a machine before the first command of a run is started there."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import environment, run
from agent.config import RunConfig
from agent.errors import AgentError
from agent.records import run_folder
from agent.reporting.progress import Progress
from agent.running import Stoppable
from sandbox import choose
from sandbox.devices import lock, readings
from sandbox.devices.readings import Load
from sandbox.errors import SandboxError
from tests.files import write_files
from tests.sandbox.devices.machines import gpu
from tools.errors import TargetTooLarge

CARD = gpu(name="AMD Instinct MI300X")


class Leftovers:
    """A sandbox whose last run was killed: what it left is at work on the GPU until it is reaped."""

    name = "local"
    left = True

    def reap(self) -> list[str]:
        self.left = False
        return []


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    target = write_files(tmp_path / "target", {"bench.py": ""})
    return RunConfig(target=target, entry="bench.py", runs_dir=tmp_path / "runs", sandbox="local", run_id="one")


@pytest.mark.guard("one run a card")
@pytest.mark.parametrize(
    ("container", "reaches", "others_busy_percent", "notes"),
    [
        (False, False, 0.0, []),
        (False, False, 99.0, ["is in use by something else"]),
        (True, True, 0.0, []),
        (True, False, 0.0, ["in this container only"]),
    ],
)
def test_what_shares_the_card_is_told_but_not_what_an_earlier_run_left(
    container: bool,
    reaches: bool,
    others_busy_percent: float,
    notes: list[str],
    config: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox, told = Leftovers(), list[str]()
    here = environment.read_host().model_copy(update={"container": container})
    monkeypatch.setattr(environment, "read_host", lambda: here)
    monkeypatch.setattr(run, "choose_gpu", lambda number, environment: CARD)
    monkeypatch.setattr(lock, "acquire", lambda gpu, run_id: contextlib.nullcontext())
    monkeypatch.setattr(lock, "reaches_other_containers", lambda: reaches)
    monkeypatch.setattr(readings, "load", lambda gpu: Load(busy_percent=99.0 if sandbox.left else others_busy_percent))
    monkeypatch.setattr(choose, "make", lambda name, wanted: sandbox)
    with run.sandbox_for(config, config.runs_dir / "sandbox", (), told.append):
        assert [note in line for note, line in zip(notes, told, strict=True)] == [True] * len(notes)


def test_what_is_to_be_mounted_and_is_not_there_is_named(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "make", lambda name, wanted: pytest.fail("it was not looked at before"))
    mounting = config.model_copy(update={"mounts": (config.target, config.target / "weights")})
    with pytest.raises(AgentError, match="weights to mount"), run.sandbox_for(mounting, config.target, (), print):
        pass


def test_a_target_that_is_too_large_is_refused_before_anything_is_tried_for_it(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.repository.target.MAX_BYTES", 10)
    monkeypatch.setattr(choose, "choose", lambda *_: pytest.fail("a sandbox was looked for"))
    write_files(config.target, {"weights.bin": "x" * 11})
    with pytest.raises(TargetTooLarge):
        run.settle(config.model_copy(update={"sandbox": "auto"}), agree=lambda reasons: False)


class Assembled(Exception):
    """The run has got so far."""


def test_what_was_spent_is_written_down_though_what_runs_cannot_be_ended(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Assembled

    monkeypatch.setattr(run, "_assemble", refuse)
    monkeypatch.setattr(Stoppable, "stop_all", refuse)
    with pytest.raises(Assembled):
        run.start(config, Progress())
    assert run_folder.find("one", [config.runs_dir]).read().spent_s > 0


def test_one_process_that_cannot_be_stopped_keeps_no_other_alive() -> None:
    asked = list[object]()

    class Process:
        def stop(self) -> None:
            asked.append(self)
            raise RuntimeError("it cannot be stopped")

    stoppable = Stoppable(cast(Any, SimpleNamespace(name="local", start=lambda command: Process())))
    started = [stoppable.start(cast(Any, None)) for _ in range(3)]
    with pytest.raises(RuntimeError):
        stoppable.stop_all()
    assert len({id(each) for each in asked}) == len(started)


def test_no_thread_starts_anything_after_all_was_stopped_or_while_it_is() -> None:
    """As a second look at what was ended would. Who sums up afterwards does."""
    stopped = list[str]()

    class Process:
        def __init__(self, command: str) -> None:
            self.command = command

        def stop(self) -> None:
            stopped.append(self.command)

    def start(command: Any) -> Process:
        if command == "meanwhile":
            stoppable.stop_all()
        return Process(command)

    stoppable = Stoppable(cast(Any, SimpleNamespace(name="local", start=start)))
    with ThreadPoolExecutor(1) as pool:
        for command in ("meanwhile", "afterwards"):
            with pytest.raises(SandboxError):
                pool.submit(stoppable.start, cast(Any, command)).result()
    assert stopped == ["meanwhile"] and stoppable.start(cast(Any, "to sum up"))


@pytest.mark.parametrize(
    ("path", "form", "why"),
    [
        ("bench.py", "declared", "it is the entry, which says how the target is used"),
        ("bench.py", "kernelbench", None),
        ("tests/data.py", "declared", "it is a test"),
        ("package/tests/helper.py", "declared", "it is a test"),
        ("package/test_model.py", "declared", "it is a test"),
        ("model_test.py", "declared", "it is a test"),
        ("conftest.py", "declared", "it is a test"),
        ("contests/model.py", "declared", None),
        ("package/model.py", "declared", None),
        ("tests.py", "declared", None),
    ],
)
def test_the_entry_and_tests_are_protected_and_nothing_else(
    path: str, form: str, why: str | None, config: RunConfig
) -> None:
    workload: Any = SimpleNamespace(form=form)
    assert run.protection(config, workload)(path) == why
