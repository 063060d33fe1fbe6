"""What was measured once is not measured again by the process that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.records import measurements
from tools.judging.own_tests import OwnTests


def test_what_is_kept_is_not_measured_again_and_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> OwnTests:
        raise KeyboardInterrupt

    file = tmp_path / "own-tests.json"
    with pytest.raises(KeyboardInterrupt):
        measurements.once(file, OwnTests, fail)
    assert list(tmp_path.iterdir()) == []
    found = OwnTests(note="two pass")
    assert measurements.once(file, OwnTests, lambda: found) == measurements.once(file, OwnTests, fail) == found
