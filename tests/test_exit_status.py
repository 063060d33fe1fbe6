"""Every way to end has a status of its own, and the page in docs/ knows it."""

from __future__ import annotations

import pytest

from sandbox.errors import DiskFull
from scripts import exit_status


def test_the_page_is_what_the_code_says() -> None:
    assert exit_status.PAGE.read_text() == exit_status.page(), "run `make docs`"


def test_every_error_has_a_status_that_a_shell_can_show() -> None:
    assert all(0 <= status <= 255 for status, _, _ in exit_status.rows())


def test_every_error_says_what_it_means() -> None:
    assert all(meaning.endswith((".", ".'", '."')) for _, _, meaning in exit_status.rows())


def test_a_status_that_is_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(exit_status.OTHER_STATUSES, DiskFull.exit_status, "Something else.")
    with pytest.raises(ValueError, match="DiskFull"):
        exit_status.page()
