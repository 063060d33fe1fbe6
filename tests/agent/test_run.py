"""What of a target no candidate may touch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.config import RunConfig
from agent.run import protection


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("bench.py", "it is the entry, which says how the target is used"),
        ("tests/data.py", "it is a test"),
        ("package/tests/helper.py", "it is a test"),
        ("package/test_model.py", "it is a test"),
        ("model_test.py", "it is a test"),
        ("conftest.py", "it is a test"),
        ("contests/model.py", None),
        ("package/model.py", None),
        ("tests.py", None),
    ],
)
def test_the_entry_and_tests_are_protected_and_nothing_else(path: str, why: str | None) -> None:
    workload: Any = SimpleNamespace(form="declared")
    assert protection(RunConfig(target=Path("t"), entry="bench.py", runs_dir=Path("r")), workload)(path) == why


def test_where_the_model_lives_in_the_entry_it_may_be_changed() -> None:
    workload: Any = SimpleNamespace(form="kernelbench")
    assert protection(RunConfig(target=Path("t"), entry="k.py", runs_dir=Path("r")), workload)("k.py") is None
