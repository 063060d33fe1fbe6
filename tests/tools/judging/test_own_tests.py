"""The target's own tests: what passed before must pass after, and nothing else counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.files import write_files
from tests.forking import ForkingSandbox
from tools.judging import own_tests
from tools.judging.open_referee import copy_guest
from tools.judging.worker import Build, Setting

MODEL = "def double(x):\n    return 2 * x\n"
TESTS = """
import pathlib
import model

def test_doubles():
    assert model.double(3) == 6

def test_that_fails_as_it_is():
    assert model.double(3) == 7

def test_that_writes_beside_itself():
    pathlib.Path(__file__).with_suffix(".seen").write_text("seen")
    pathlib.Path("here").write_text("seen")
"""


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(ForkingSandbox(), sys.executable, copy_guest(tmp_path / "guest"), "bench.py", tmp_path / "workers")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Build]:
    def build(name: str, model: str = MODEL, tests: str = TESTS) -> Build:
        files = {"bench.py": "", "model.py": model, "tests/test_model.py": tests}
        return Build(name, write_files(tmp_path / name, files if tests else {"bench.py": ""}))

    return build


def test_only_passing_tests_count_and_the_tree_is_not_written(setting: Setting, make: Callable[..., Build]) -> None:
    pristine = make("pristine")
    before = sorted(path.name for path in pristine.tree.rglob("*"))
    found = own_tests.run_pristine(setting, pristine)
    assert found.passed == ["tests/test_model.py::test_doubles", "tests/test_model.py::test_that_writes_beside_itself"]
    assert "2 tests" in found.note and "1 fail already" in found.note
    assert sorted(path.name for path in pristine.tree.rglob("*")) == before


@pytest.mark.slow
def test_a_change_that_breaks_a_test_is_named(setting: Setting, make: Callable[..., Build]) -> None:
    pristine, same = make("pristine"), make("same")
    found = own_tests.run_pristine(setting, pristine)
    broken, unloadable = make("broken", MODEL.replace("2 * x", "2 * x + 1")), make("unloadable", "def double(x:\n")
    assert own_tests.broken_by(found, setting, pristine, same) == []
    assert own_tests.broken_by(found, setting, pristine, broken) == ["tests/test_model.py::test_doubles"]
    assert own_tests.broken_by(found, setting, pristine, unloadable) == found.passed


@pytest.mark.parametrize(("tests", "note"), [("", "no tests"), ("import os\nos._exit(0)\n", "could not be run")])
def test_a_suite_that_dies_does_not_count(setting: Setting, make: Callable[..., Build], tests: str, note: str) -> None:
    found = own_tests.run_pristine(setting, make("pristine", tests=tests))
    assert found.passed == [] and note in found.note


def test_a_flaky_test_blames_nobody(
    setting: Setting, make: Callable[..., Build], monkeypatch: pytest.MonkeyPatch
) -> None:
    pristine, candidate = make("pristine"), make("candidate")
    found = own_tests.OwnTests(passed=["swaying", "too"], note="")
    runs = []

    def run(setting: Setting, build: Build, only: object = ()) -> dict[str, list[str]]:
        runs.append(build.key)
        return {"passed": []}

    monkeypatch.setattr(own_tests, "_run", run)
    assert own_tests.broken_by(found, setting, pristine, candidate) == []
    assert runs == ["candidate", "pristine"]


def test_names_of_tests_that_cannot_be_sent_back_do_not_count() -> None:
    told = {"passed": ["test_a.py::test_a", "x" * 5000, "\x1b[2J", 3, ["x"]]}
    assert own_tests._ids(told, "passed") == ["test_a.py::test_a"]
