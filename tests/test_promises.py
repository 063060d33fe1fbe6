"""The table of promises in `docs/trust.md` is what the attack suite holds the providers to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import promises
from tests.sandbox.attacks.suite import ALL

ROOT = Path(__file__).resolve().parents[1]


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
