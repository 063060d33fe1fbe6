"""The referee on a real target, where what it needs is scarce."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.evals.arena import Arena
from tools.judging.measure import Request
from tools.judging.workload import Workload


def test_a_model_that_has_no_room_beside_another_is_checked_and_timed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workload, "fits", lambda self, copies: False)
    arena = Arena.open(tmp_path, sys.executable)
    cheat = arena.candidate("11_changed_inputs")
    try:
        assert arena.referee.check(arena.referee.pristine).finding.verdict is None
        assert arena.referee.check(cheat).finding.verdict == "wrong"
        request = Request("alone", arena.incumbent, {"candidate": arena.incumbent}, lambda ratios: bool(ratios))
        measured = arena.referee.clock.compare(request)
        assert measured.only.incumbent_us and measured.only.candidate_us and not measured.only.refused
    finally:
        arena.referee.close()


def test_room_is_what_the_device_has_less_a_margin() -> None:
    def workload(peak_bytes: int, device_bytes: int) -> Workload:
        environment = {"device": "cuda", "gpu_memory_bytes": device_bytes}
        found = object.__new__(Workload)
        found.__dict__.update(environment=environment, peak_bytes=peak_bytes)
        return found

    assert workload(40, 100).fits(2)
    assert not workload(45, 100).fits(2)
    assert workload(10**12, 0).fits(9), "a CPU's memory is not asked"
