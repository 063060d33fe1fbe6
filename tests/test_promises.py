"""The generated pages of promises and guards say what holds, and no guard is without a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import guards, promises
from tests.sandbox.attacks.suite import ALL

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = {  # one cheat stands for each in the quick tier
    "a clock of its own": "01_patched_timers",
    "outputs that come later": "24_reply_first",
    "outputs that are wrong": "09_constant",
    "an end that looks like success": "15_exit_zero",
    "files that the verdict rests on": "18_slowed_baseline",
    "inputs that are known beforehand": "26_remembered_results",
    "the other worker": "27_spinning_child",
    "work outside of the call": "beyond_staged_ahead",
    "what restarts leave": "beyond_memory_of_restarts",
    "a cache that is shared": "31_poisoned_cache",
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


def test_every_guard_has_a_test_and_every_mark_names_a_guard() -> None:
    tests, known = guards.marked(), [guard for table in guards.guards().values() for guard in table]
    assert len(known) > 40
    assert [name for guard in known for name in guard.names if name not in tests] == []
    assert tests.keys() - {name for guard in known for name in guard.names} == set()


def test_each_kind_of_cheat_is_in_the_quick_tier() -> None:
    """Shown to be refused, or to gain nothing, and to gain where its guard is gone."""
    tests = guards.marked()
    for family, cheat in FAMILIES.items():
        of_family = {test.name for test in tests[cheat] if "test" in test.tiers}
        gone = {name for name in of_family if re.search(r"_gains?_(?!nothing)|_pass(es)?_", name)}
        caught = {name for name in of_family if name not in gone or "_only_" in name}
        assert gone and caught, family
