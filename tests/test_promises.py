"""The generated pages of promises and guards say what holds, and no guard is without a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import guards, promises
from tests.sandbox.attacks.suite import ALL

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r'^@pytest\.mark\.guard\("(.*)"\)', re.MULTILINE)
RED_TEAM_TESTS = [file.relative_to(ROOT) for file in sorted((ROOT / "tests" / "evals").glob("test_red_team_*.py"))]
FAMILIES = {  # one cheat stands for each in the quick tier
    "a clock of its own": ["01_patched_timers"],
    "outputs that come later": ["24_reply_first"],
    "outputs that are wrong": ["09_constant"],
    "an end that looks like success": ["15_exit_zero"],
    "files that the verdict rests on": ["18_slowed_baseline"],
    "inputs that are known beforehand": ["26_remembered_results"],
    "the other worker": ["27_spinning_child"],
    "work outside of the call": ["beyond_staged_ahead"],
    "what restarts leave": ["beyond_memory_of_restarts"],
    "a cache that is shared": ["31_poisoned_cache"],
}


def test_the_table_is_what_the_suite_holds_them_to() -> None:
    assert promises.PAGE.read_text() == promises.page(), "run `make docs`"


def test_every_check_is_in_the_table() -> None:
    assert [check.name for check in ALL if check.name not in promises.table()] == []


def test_a_page_without_a_place_for_it_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "PAGE", tmp_path / "trust.md")
    promises.PAGE.write_text("# No table here\n")
    with pytest.raises(ValueError, match="no place"):
        promises.page()


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"\]\(\.\./([\w/.]+)\)", promises.PAGE.read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_page_of_guards_is_what_the_sources_say() -> None:
    assert guards.PAGE.read_text() == guards.page(), "run `make docs`"


def test_no_guard_is_without_a_test() -> None:
    found = [*guards.of_red_team(), *guards.of_trust()]
    assert len(found) > 60
    assert [(guard.name, guard.against) for guard in found if not guard.tests] == []


def test_every_mark_of_a_guard_names_a_row() -> None:
    marked = {name for file in (ROOT / "tests").rglob("test_*.py") for name in MARK.findall(file.read_text())}
    rows = {row[0] for row in guards.rows((guards.RED_TEAM / "README.md").read_text(), "cheat | what it did")}
    assert marked and marked <= rows


def test_each_kind_of_cheat_is_in_the_quick_tier() -> None:
    """Shown to be refused, or to gain nothing, and to gain where its guard is gone."""
    for family, numbers in FAMILIES.items():
        tests = {test for file in RED_TEAM_TESTS for test in guards.tests_of(file) if "test" in test.tiers}
        of_family = [t.name for t in tests if any(n in t.name or n in t.text for n in numbers)]
        gone = [name for name in of_family if re.search(r"_gains?_(?!nothing)|_pass(es)?_", name)]
        assert gone and set(of_family) - set(gone), family
