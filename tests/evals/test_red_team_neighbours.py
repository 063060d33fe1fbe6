"""Cheats that work on what lies beside them: other trees, the other worker, more cores, a cache that is shared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.supervision.process import SupervisedProcess
from tests.evals.arena import RED_TEAM, Arena, gains_nothing, kept
from tests.sandbox.uncontained import OurUser
from tools.errors import GroundsChanged
from tools.judging import agreement, worker
from tools.judging.clock import Session
from tools.judging.grounds import Grounds
from tools.judging.plan import TURNS
from tools.judging.worker import Build

pytestmark = pytest.mark.guard("red team")

# -- 18: the baseline


@pytest.fixture
def expendable(arena: Arena, open_folder: Path) -> Arena:
    """The same with a pristine tree of its own, which a cheat may spoil."""
    trees = open_folder / "trees"
    pristine = Build("pristine", shutil.copytree(RED_TEAM / "target", trees / "pristine"))
    referee = replace(arena.referee, pristine=pristine, grounds=Grounds())
    return replace(arena, trees=trees, incumbent=pristine, referee=referee)


@pytest.mark.guard("18_slowed_baseline")
def test_18_a_slowed_baseline_is_refused(expendable: Arena) -> None:
    expendable.referee.grounds.share([expendable.referee.pristine.tree])
    verdict = expendable.judge("18_slowed_baseline")
    assert (verdict.name, "pristine/layers.py" in verdict.reason) == ("refused", True)
    with pytest.raises(GroundsChanged, match=r"pristine/layers\.py"):  # nothing can be judged by it any more
        expendable.check("09_constant")


@pytest.mark.guard("18_slowed_baseline")
@pytest.mark.parametrize("floor", [0.25, 1e6], ids=["a gain", "no gain shown"])
def test_18_a_slowed_incumbent_is_refused_even_if_it_is_not_the_pristine_tree(
    arena: Arena, open_folder: Path, floor: float
) -> None:
    own = replace(arena, trees=open_folder)
    top = Build("top", shutil.copytree(RED_TEAM / "target", open_folder / "top"))
    incumbent = arena.referee.fill(top)
    verdict = replace(own, incumbent=incumbent).with_noise(floor).judge("18_slowed_baseline")
    assert (verdict.name, "top/layers.py" in verdict.reason) == ("refused", True)


@pytest.mark.alone
@pytest.mark.guard("18_slowed_baseline")
def test_18_gains_where_nobody_looks_at_the_files(expendable: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grounds, "changes", lambda self, *builds: [])
    kept(expendable.judge("18_slowed_baseline"))


# -- 27: the other worker


def without_freezing(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    arena.referee.close()  # what draws inputs is frozen, and would stay so
    for name in ("freeze", "thaw"):
        monkeypatch.setattr(SupervisedProcess, name, lambda self: None)
    blind_to_cores(monkeypatch)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("27_spinning_child")
def test_27_a_slowed_incumbent_is_noticed_by_the_time_it_takes_beside_its_copies(
    long_arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_freezing(long_arena, monkeypatch)
    monkeypatch.setattr(agreement, "AGREEMENT", 1.25)
    clock = replace(long_arena.referee.clock, known_us={long_arena.incumbent.key: [[1.0]]})  # type: ignore[type-var]
    verdict = replace(long_arena, referee=replace(long_arena.referee, clock=clock)).time("27_spinning_child")
    assert (verdict.name, "it is being slowed down" in verdict.reason) == ("refused", True)


@pytest.mark.alone
@pytest.mark.guard("27_spinning_child")
def test_27_a_spinning_child_gains_only_where_the_idle_worker_is_not_frozen(
    long_arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    gains_nothing(long_arena.time("27_spinning_child"))
    weak = long_arena.with_setting()
    without_freezing(weak, monkeypatch)
    monkeypatch.setattr(agreement, "check", lambda *_, **how: None)
    kept(weak.with_noise(0.05).time("27_spinning_child"))


# -- 28: more cores


two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is no second one to take")


def blind_to_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_check_cores", lambda *_: None)
    monkeypatch.setattr(Session, "_check_time_used", lambda *_: None)


@pytest.fixture
def neighbours(long_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others on the core where calls are timed, so that a second core is worth having however busy it is."""
    time_case = Session._time_case

    def beside_neighbours(self: Session, *arguments: Any) -> None:
        # each in a session of its own, which is what the kernel shares a core out to
        burn = [sys.executable, "-c", "while True: pass"]
        burners = [subprocess.Popen(burn, start_new_session=True) for _ in range(10)]
        try:
            for burner in burners:
                os.sched_setaffinity(burner.pid, self.cores.timed)
            time_case(self, *arguments)
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()

    monkeypatch.setattr(Session, "_time_case", beside_neighbours)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("28_more_cores")
def test_28_more_cores_gain_nothing_as_the_sandbox_is(long_arena: Arena, open_folder: Path) -> None:
    sandbox = OurUser(sys.executable, open_folder)
    assert long_arena.with_setting(sandbox=sandbox).time("28_more_cores").name != "kept"


@pytest.mark.slow
@two_cpus
@pytest.mark.guard("28_more_cores")
def test_28_more_cores_are_refused_where_the_kernel_lets_it_have_them(long_arena: Arena) -> None:
    verdict = long_arena.time("28_more_cores")
    assert (verdict.name, "may run on CPUs" in verdict.reason) == ("refused", True)


@pytest.mark.alone
@pytest.mark.slow
@two_cpus
@pytest.mark.guard("28_more_cores")
def test_28_gains_where_nobody_looks_at_the_cores(
    long_arena: Arena, neighbours: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind_to_cores(monkeypatch)
    monkeypatch.setattr(worker, "SPIN_S", 0.0)  # the host leaves its core alone
    monkeypatch.setitem(TURNS, "cpu", replace(TURNS["cpu"], rounds=2, fewest=2))
    kept(long_arena.with_noise(0.05).time("28_more_cores"))


# -- 31: the compile cache


@pytest.mark.alone
@pytest.mark.guard("31_poisoned_cache")
def test_31_a_poisoned_cache_gains_only_where_it_is_shared(arena: Arena) -> None:
    gains_nothing(arena.judge("31_poisoned_cache"))
    checked = arena.referee.check(arena.candidate("31_poisoned_cache"))
    shared = replace(arena.incumbent, cache=checked.build.cache)
    kept(arena.with_setting().referee.time(checked, shared))
