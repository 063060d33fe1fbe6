"""The tiers of tests: the quick one keeps its time, and what it stands for is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiers
from tests.tiers import Tiered


def test_the_quick_tier_keeps_its_time(all_tests: list[Tiered]) -> None:
    """By what was recorded, so that no slow machine fails it, and none that is quick hides what was added."""
    quick = [test for test in all_tests if test.quick]
    known = tiers.recorded()
    longest = sorted(quick, key=lambda test: -known.get(test.id, 0.0))[:10]
    expected = tiers.expected_s(quick)
    told = "\n".join(f"{known.get(test.id, 0.0):6.1f} s {test.id}" for test in longest)
    assert expected <= tiers.BUDGET_S, f"the quick tier takes {expected:.0f} s; mark some as slow:\n{told}"


def test_what_is_alone_counts_in_full_and_what_is_not_recorded_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "recorded", lambda: {"a": 10.0, "b": 4.0, "c": 8.0})
    tests = [Tiered("a", alone=True, slow=False, gpu=False), *(Tiered(n, False, False, False) for n in "bcd")]
    assert tiers.expected_s(tests) == pytest.approx(10.0 + (4.0 + 8.0 + tiers.DEFAULT_S) / 2)


def test_what_ran_is_recorded_and_what_did_not_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tests" / "durations.json"
    file.parent.mkdir()
    (file.parent / "test_a.py").touch()
    file.write_text(json.dumps({"tests/test_a.py::x": 1.0, "tests/test_a.py::y": 2.0, "tests/test_gone.py::z": 3.0}))
    monkeypatch.setattr(tiers, "DURATIONS", file)
    tiers.record({"tests/test_a.py::x": 5.04, "tests/test_a.py::quick": 0.1})
    assert json.loads(file.read_text()) == {"tests/test_a.py::x": 5.0, "tests/test_a.py::y": 2.0}
