"""What was measured once is not measured again by the process that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.records import measurements
from tools.judging.own_tests import OwnTests


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    measured = []

    def measure() -> OwnTests:
        measured.append(1)
        return OwnTests(note="two pass")

    found = [measurements.once(tmp_path / "own-tests.json", OwnTests, measure) for _ in range(3)]
    assert len(measured) == 1
    assert found == [OwnTests(note="two pass")] * 3


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> OwnTests:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measurements.once(tmp_path / "own-tests.json", OwnTests, fail)
    assert list(tmp_path.iterdir()) == []
