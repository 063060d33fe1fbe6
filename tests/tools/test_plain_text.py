"""Foreign text stays on one line and cannot reach the terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tools.plain_text import one_line


@given(st.text())
def test_foreign_text_stays_on_one_line_and_cannot_reach_the_terminal(text: str) -> None:
    assert one_line(text).isprintable()
    assert one_line("a\x1b[31mb\nc d", 6) == "a [31…", "and is cut where asked"
