"""What many tests of the agent stand on: a user's machine, and one observed target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.lab import Lab
from tests.agent.proposed import copy_of
from tests.observed import Target
from tools.observation import Observation


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """With an empty home, so that nobody's own ignore file has a say."""
    made = Lab(tmp_path)
    for folder in (made.home, made.run):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return made


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Target, Observation]:
    target = copy_of(tmp_path_factory.mktemp("decoder"), "decoder")
    return target, target.observe({"batch": 1, "tokens": 32})
