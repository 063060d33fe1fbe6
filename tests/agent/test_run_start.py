"""What is done on a machine before the first command of a run is started there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import environment, run
from agent.budget import longest_check_s
from agent.config import RunConfig
from agent.errors import AgentError
from agent.records import run_folder
from agent.reporting.progress import Silent
from agent.running import Stoppable
from sandbox import choose
from sandbox.devices import load, lock
from sandbox.devices.load import Load
from sandbox.devices.record import Gpu
from tests.files import write_files
from tools.errors import TargetTooLarge

CARD = Gpu(
    vendor="amd",
    index=0,
    name="AMD Instinct MI300X",
    gfx="gfx942",
    pci="0000:c1:00.0",
    render_minor=128,
    devices=(Path("/dev/kfd"),),
    groups=(44,),
    accessible=True,
    card="0000:c1:00.0",
)


class Leftovers:
    """A sandbox whose last run was killed: what it left is at work on the GPU until it is reaped."""

    name = "local"
    left = True

    def reap(self) -> list[str]:
        self.left = False
        return []


@pytest.mark.parametrize(("others_busy_percent", "notes"), [(0.0, 0), (99.0, 1)], ids=["alone", "shared"])
def test_what_an_earlier_run_left_is_not_taken_for_somebody_else(
    others_busy_percent: float, notes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, told = Leftovers(), list[str]()
    monkeypatch.setattr(run, "choose_gpu", lambda number, environment: CARD)
    monkeypatch.setattr(lock, "acquire", lambda gpu, run_id: contextlib.nullcontext())
    monkeypatch.setattr(lock, "reaches_other_containers", lambda: True)
    monkeypatch.setattr(load, "read", lambda gpu: Load(busy_percent=99.0 if sandbox.left else others_busy_percent))
    monkeypatch.setattr(choose, "make", lambda name, wanted: sandbox)
    config = RunConfig(target=tmp_path / "t", entry="b.py", runs_dir=tmp_path / "runs", sandbox="local")
    with run.sandbox_for(config, tmp_path / "sandbox", (), told.append):
        assert len(told) == notes


@pytest.mark.parametrize(("container", "given", "told"), [(True, False, 1), (True, True, 0), (False, False, 0)])
@pytest.mark.guard("one run a card")
def test_a_lock_that_ends_at_a_containers_wall_is_told(
    container: bool, given: bool, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = environment.read_host().model_copy(update={"container": container})
    monkeypatch.setattr(environment, "read_host", lambda: here)
    monkeypatch.setattr(lock, "reaches_other_containers", lambda: given)
    monkeypatch.setattr(lock, "acquire", lambda gpu, run_id: contextlib.nullcontext())
    monkeypatch.setattr(run, "choose_gpu", lambda number, variables: CARD)
    monkeypatch.setattr(load, "read", lambda gpu: Load())
    monkeypatch.setattr(choose, "make", lambda name, wanted: Leftovers())
    config = RunConfig(target=tmp_path / "t", entry="b.py", runs_dir=tmp_path / "runs", sandbox="local")
    said = list[str]()
    with run.sandbox_for(config, tmp_path / "sandbox", (), said.append):
        assert len(said) == told and all("in this container only" in each for each in said)


def test_what_is_to_be_mounted_and_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "make", lambda name, wanted: pytest.fail("it was not looked at before"))
    asked = RunConfig(target=tmp_path / "t", entry="b.py", runs_dir=tmp_path / "runs", sandbox="local")
    config = asked.model_copy(update={"mounts": (tmp_path, tmp_path / "weights")})
    with (
        pytest.raises(AgentError, match="weights to mount"),
        run.sandbox_for(config, tmp_path / "sandbox", (), print),
    ):
        pass


def test_a_target_that_is_too_large_is_refused_before_anything_is_tried_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.repository.target.MAX_BYTES", 10)
    monkeypatch.setattr(choose, "choose", lambda *_: pytest.fail("a sandbox was looked for"))
    target = write_files(tmp_path / "target", {"bench.py": "", "weights.bin": "x" * 11})
    config = RunConfig(target=target, entry="bench.py", runs_dir=tmp_path / "runs")
    with pytest.raises(TargetTooLarge):
        run.settle(config, agree=lambda reasons: False)


class Assembled(Exception):
    """The run has got so far."""


def test_the_budget_says_how_long_a_build_that_compiles_itself_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def open_referee(*arguments: Any, **keywords: Any) -> None:
        asked.update(keywords)
        raise Assembled

    monkeypatch.setattr(run, "open_referee", open_referee)
    target = write_files(tmp_path / "target", {"bench.py": ""})
    config = RunConfig(target=target, entry="bench.py", runs_dir=tmp_path / "runs", sandbox="local", budget_minutes=22)
    with pytest.raises(Assembled):
        run.start(config, Silent())
    assert asked["check_timeout_s"] == longest_check_s(22)


def test_what_was_spent_is_written_down_though_what_runs_cannot_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Assembled

    monkeypatch.setattr(run, "_assemble", refuse)
    monkeypatch.setattr(Stoppable, "stop_all", refuse)
    target = write_files(tmp_path / "target", {"bench.py": ""})
    config = RunConfig(target=target, entry="bench.py", runs_dir=tmp_path / "runs", sandbox="local", run_id="one")
    with pytest.raises(Assembled):
        run.start(config, Silent())
    assert run_folder.find("one", [tmp_path / "runs"]).read().spent_s > 0


def test_one_process_that_cannot_be_stopped_keeps_no_other_alive() -> None:
    asked = list[object]()

    class Process:
        def stop(self) -> None:
            asked.append(self)
            raise RuntimeError("it cannot be stopped")

    stoppable = Stoppable(cast(Any, SimpleNamespace(start=lambda command: Process())))
    started = [stoppable.start(cast(Any, None)) for _ in range(3)]
    with pytest.raises(RuntimeError):
        stoppable.stop_all()
    assert len({id(each) for each in asked}) == len(started)
