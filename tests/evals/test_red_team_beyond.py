"""Cheats beyond the catalogue, found by attacking the referee: none is kept, and each is where its guard is gone."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evals.arena import Arena, gains_nothing, kept, only_medians_count, replace_once, staging_counts_nowhere
from tools.judging import accept, clock, comparison, inputs
from tools.judging.clock import Group, Session
from tools.judging.comparison import INCUMBENT
from tools.judging.grounds import Grounds
from tools.judging.inputs import InputSupply
from tools.judging.plan import SETTLE, TURNS, Plan
from tools.judging.worker import Build, Worker

pytestmark = pytest.mark.guard("red team")

# -- work that is done while an input is staged


@pytest.mark.alone
@pytest.mark.guard("beyond_staged_ahead")
def test_work_moved_into_staging_gains_only_where_staging_is_free(
    long_arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "tripped", lambda self: set())
    gains_nothing(long_arena.judge("beyond_staged_ahead"))
    staging_counts_nowhere(monkeypatch)
    kept(long_arena.with_setting().time("beyond_staged_ahead"))


SEALING = "    if not tensor.numel():\n"


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("beyond_staged_ahead")
def test_work_moved_into_loading_gains_only_where_nothing_is_sealed(
    long_arena: Arena, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where loading itself is free, as it is for large inputs on a GPU."""
    monkeypatch.setitem(inputs.SEALED_BYTES, "cpu", 0)
    monkeypatch.setattr(comparison, "LOADING_SLACK", float("inf"))
    monkeypatch.setattr(Worker, "tripped", lambda self: set())
    gains_nothing(long_arena.judge("beyond_staged_ahead"))
    weak = long_arena.with_guest(tmp_path, {"seal.py": [(SEALING, "    if True:\n")]})
    supply = weak.referee.supply
    supply.close()  # nor is anything sealed by what stands by
    monkeypatch.setattr(supply, "setting", weak.referee.setting)
    try:
        kept(weak.time("beyond_staged_ahead"))
    finally:
        supply.close()


# -- results that are kept until torch counts a write


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("beyond_version_of_inputs")
def test_inputs_of_timed_calls_are_written_uncounted_too(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "SAMPLES", TURNS["cpu"].rounds)
    verdict = arena.time("beyond_version_of_inputs")
    assert (verdict.name, "timed call" in verdict.reason) == ("wrong", True), verdict.reason


# -- a median that hides the slower half


@pytest.fixture
def against_a_slow_tuning(arena: Arena, tmp_path: Path) -> Arena:
    """The incumbent takes two rows at a time, as its cache says, so that taking all at once is a gain."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "rows_at_once").write_text("2")
    return replace(arena, incumbent=replace(arena.incumbent, cache=tmp_path))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("beyond_slow_tail")
def test_most_calls_faster_but_all_together_slower_gains_only_where_the_median_alone_counts(
    against_a_slow_tuning: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = against_a_slow_tuning.time("beyond_slow_tail")
    assert (verdict.name, "all calls together" in verdict.reason) == ("slower", True)
    only_medians_count(monkeypatch)
    kept(against_a_slow_tuning.with_setting().time("beyond_slow_tail"))


# -- other code judged than is kept


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.guard("beyond_own_tree")
def test_a_note_in_its_own_tree_gains_where_nobody_looks_at_it(
    against_a_slow_tuning: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Grounds, "changes", lambda self, *builds: [])
    (against_a_slow_tuning.tree("beyond_own_tree") / "quick").unlink(missing_ok=True)
    kept(against_a_slow_tuning.judge("beyond_own_tree"))


# -- inputs that lie where somebody could look for them


@pytest.mark.guard("the other inbox")
def test_an_input_lies_in_the_inbox_only_until_its_call_is_over(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others are frozen, and no longer: to take it back sooner would give its worker time that nobody counts."""
    during, afterwards, timed_call, block = list[int](), list[int](), Worker.timed_call, Session._block

    def look_first(self: Worker, prepared: tuple[int, str, bytes]) -> tuple[str, int]:
        during.append(len(list(self.inbox.iterdir())))
        return timed_call(self, prepared)

    def look_after(self: Session, case: int, plan: Plan, group: Group, name: str, *rest: Any) -> None:
        block(self, case, plan, group, name, *rest)
        afterwards.append(len(list(group.workers[name].inbox.iterdir())))

    monkeypatch.setattr(Worker, "timed_call", look_first)
    monkeypatch.setattr(Session, "_block", look_after)
    arena.time("31_poisoned_cache")
    states = len(arena.referee.workload.states)  # what is not taken back: the two state dicts
    assert set(during) == {states + 1} and set(afterwards) == {states}


@pytest.mark.guard("the other inbox")
def test_nobody_else_can_list_or_enter_the_folders_where_inputs_lie(arena: Arena) -> None:
    folders = (arena.referee.scratch, arena.referee.setting.scratch)
    # where each worker has a user of its own the second is 0711, so that it can be passed
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]


# -- what one restart leaves for the next, and one worker for another


@pytest.fixture
def memory() -> Iterator[None]:
    folder = Path("/tmp/ratchet-red-team-memory")
    shutil.rmtree(folder, ignore_errors=True)
    yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.alone
@pytest.mark.usefixtures("memory")
@pytest.mark.guard("beyond_memory_of_restarts")
def test_a_memory_that_outlives_restarts_gains_only_where_inputs_come_again(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept, "LOOKS", {2: 2})  # the first is lost on filling the memory
    gains_nothing(arena.time("beyond_memory_of_restarts"))
    draw_all, drawn = InputSupply.draw_all, list[Any]()

    def the_same_again(*asked: Any) -> Any:
        drawn.append(drawn[0] if drawn else draw_all(*asked))
        return drawn[0]

    monkeypatch.setattr(InputSupply, "draw_all", the_same_again)
    monkeypatch.setattr(Group, "close", lambda self: [worker.close() for worker in self.workers.values()])
    kept(arena.with_setting().time("beyond_memory_of_restarts"))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.usefixtures("memory")
@pytest.mark.guard("the same beside a kept change that leaks")
def test_results_that_the_incumbent_leaves_gain_only_where_both_get_the_same_inputs(
    long_arena: Arena, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incumbent leaves its results where the candidate looks, and does not look there itself."""
    own = replace(long_arena, trees=open_folder)
    leaking = own.tree("beyond_memory_of_restarts").rename(open_folder / "leaking")
    replace_once(leaking / "model.py", "if file.exists():", "if False:")
    beside_it = replace(own, incumbent=Build("leaking", leaking))
    gains_nothing(beside_it.time("beyond_memory_of_restarts"))
    draw, block = InputSupply.draw, SETTLE + TURNS["cpu"].calls

    def drawn_once(self: Any, sides: Sequence[str]) -> dict[str, Any]:
        """For a candidate a block later: whichever is timed first, the incumbent has had them by then."""
        once = draw(self, sides[:1])[sides[0]]
        later = [files[-block:] + files[:-block] for files in once]
        return {side: once if side.endswith(INCUMBENT) else later for side in sides}

    monkeypatch.setattr(InputSupply, "draw", drawn_once)
    kept(beside_it.with_setting().time("beyond_memory_of_restarts"))
