"""The limits under which the agent was started bind its commands as well, and keep none of them from starting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.errors import Unusable
from sandbox.supervision import launch
from sandbox.supervision.control_groups import EVERY_KIND, Kind, settle

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import json, resource, sys
sys.path.insert(0, {root!r})
from sandbox.supervision import launch
kinds = (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)
for kind, hard in zip(kinds, {hard!r}):
    resource.setrlimit(kind, (hard, hard))
order = launch.Order(host_pid=1, argv=[], cwd="/", env={{}}, bounds=[], file_bytes=1 << 20, processes=100)
launch._set_limits(order)
print(json.dumps([resource.getrlimit(kind) for kind in kinds]))
"""


@pytest.mark.parametrize(
    ("hard", "expected"),
    [((1 << 16, 50), [[1 << 16] * 2, [50] * 2]), ((1 << 30, 5000), [[1 << 20] * 2, [164] * 2])],
)
def test_no_more_is_asked_for_than_the_agent_itself_may_have(hard: tuple[int, int], expected: list[list[int]]) -> None:
    code = CODE.format(root=str(ROOT), hard=hard)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


def test_control_groups_are_not_given_up_for_limits_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(order: launch.Order) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(launch, "_set_limits", refuse)
    monkeypatch.setattr(launch.os, "setsid", lambda: None)
    monkeypatch.setattr(launch, "_die_with_supervisor", lambda failure_end: None)
    with pytest.raises(launch.LaunchFailure) as caught:
        launch._become(launch.Order(host_pid=1, argv=[], cwd="/", env={}, bounds=[]), [], -1, -1)
    assert caught.value.stage not in EVERY_KIND

    def attempt(kinds: frozenset[Kind]) -> None:
        raise Unusable(caught.value.stage, caught.value.text)

    with pytest.raises(Unusable):
        settle(attempt)
