"""No result is written over another."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from evals.result_file import ResultFile, portable

DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Seen(BaseModel):
    """What a run measured."""

    number: int


def test_two_that_began_in_one_second_are_both_kept(tmp_path: Path) -> None:
    files = [ResultFile(tmp_path, "tasks", DATE) for _ in range(3)]
    for number, file in enumerate(files):
        file.write(Seen(number=0), "a page that is not complete")
        file.write(Seen(number=number), f"page {number}")
    kept = {path.name: Seen.model_validate_json(path.read_text()).number for path in tmp_path.glob("*.json")}
    assert kept == {f"tasks-20260102-030405{end}.json": number for number, end in enumerate(("", "-2", "-3"))}
    assert [Path(str(file)).with_suffix(".md").read_text() for file in files] == ["page 0", "page 1", "page 2"]


@pytest.mark.parametrize(
    ("home", "shown"), [("/home/me", '"~", ~/x, ~. /home/menu /home/me-too /home/me.old'), ("/", None)]
)
def test_a_home_is_not_named_and_nothing_else_is_changed(
    home: str, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    told = '"/home/me", /home/me/x, /home/me. /home/menu /home/me-too /home/me.old'
    assert portable(told) == (shown or told)
