"""Workers of one build are forked from the same process, restart by restart, where the sandbox can end all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox.bwrap.provider import BwrapSandbox
from sandbox.contract import Command, Process
from tests.files import folder_open_to_all, write_files
from tests.forking import ForkingSandbox, unwatched_packages
from tests.sandbox.conftest import available
from tests.tools.judging.opened import linear
from tools.judging import warm
from tools.judging.clock import Session
from tools.judging.measure import LiveClock
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee
from tools.judging.warm import Warm
from tools.judging.worker import Build, Worker


class Counting(BwrapSandbox):
    started = 0

    def start(self, command: Command) -> Process:  # type: ignore[override]
        self.started += command.renewable
        return super().start(command)


@pytest.fixture(scope="module")
def contained() -> Iterator[tuple[Referee, Counting]]:
    with folder_open_to_all() as folder, unwatched_packages():
        pristine = write_files(folder / "pristine", {"bench.py": linear(first="import colorsys")})
        sandbox = Counting(sys.executable, folder / "sandbox", owned=(folder,))
        available(sandbox)
        opened = open_referee(pristine, "bench.py", python=sys.executable, sandbox=sandbox, scratch=folder / "scratch")
        with closing(opened) as referee:
            yield referee, sandbox


def test_a_process_serves_the_workers_of_its_side_restart_by_restart(
    contained: tuple[Referee, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    referee, sandbox = contained
    clock, build = referee.clock, referee.pristine
    assert isinstance(clock, LiveClock) and clock.warm is not None
    monkeypatch.setattr(warm, "WORKERS", 2)
    before, counts = sandbox.started, list[int]()
    with clock.supply.opened() as inputs:
        sides = {"incumbent": build, "copy": build}
        with closing(Session(clock.setting, clock.workload, sides, inputs, clock.cores, warm=clock.warm)) as session:
            for _ in range(3):
                restart = session.restart()
                assert all(side.call_ns[0] for side in restart.sides.values())
                counts.append(sandbox.started - before)
    assert counts == [2, 2, 4]
    clock.warm.close(but=build.key)
    assert sum(map(len, clock.warm._idle.values())) == 2
    clock.warm.close()
    assert not clock.warm._idle


def test_the_folders_of_a_worker_are_those_of_a_first_one(contained: tuple[Referee, Counting]) -> None:
    referee, _ = contained
    clock = referee.clock
    assert isinstance(clock, LiveClock) and clock.warm is not None
    homes = []
    for left in (True, False):
        with Worker(clock.setting, referee.pristine, warm=clock.warm) as worker:
            worker.ask("build", **clock.workload.build_arguments(worker))
            homes.append(worker.home)
            there = sorted(path.name for path in worker.home.rglob("*") if path.name != warm.IMPORTS)
            assert there == ["cache", "out", "tmp"]
            shown = worker.reveal(referee.workload.inputs[0][0])
            assert Path(shown).exists() and len([*worker.inbox.iterdir()]) == 1
            if left:
                (worker.home / "tmp" / "left").write_text("x")
                (worker.home / "cache").rmdir()
                (worker.home / "cache").symlink_to(worker.home)
    assert homes[0] == homes[1]


def test_what_the_original_has_loaded_is_imported_and_nothing_of_its_own(contained: tuple[Referee, Counting]) -> None:
    imports = contained[0].workload.imports
    assert {"torch", "torch.nn", "colorsys"} <= {*imports}
    assert not {"bench", "__main__"} & {*imports} and not any(name.startswith("_ratchet") for name in imports)


def test_where_a_worker_has_the_user_of_others_each_is_started() -> None:
    assert Warm.where_safe(ForkingSandbox(), ["torch"], compiler=True) is None


def test_what_compiling_takes_is_imported_where_it_is_known_and_a_fork_may_have_it(tmp_path: Path) -> None:
    (tmp_path / warm.IMPORTS).write_text("torch._dynamo torch._inductor")
    assert Warm(["torch"], compiler=True).names(tmp_path).split() == ["torch", "torch._dynamo", "torch._inductor"]
    assert Warm(["torch"], compiler=False).names(tmp_path) == Warm(["torch"], compiler=True).names(None) == "torch"
    assert not Build("key", tmp_path).compiles and not Build("key", tmp_path, cache=tmp_path).compiles
    (tmp_path / "inductor").mkdir()
    assert Build("key", tmp_path, cache=tmp_path).compiles
