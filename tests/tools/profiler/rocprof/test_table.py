"""A CSV file that a target may have written is read as far as it makes sense, within bounds, and never raises."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.files import write_files
from tools.profiler.rocprof import table
from tools.profiler.rocprof.table import Row, Table, find

CSV = re.compile(r".*\.csv").fullmatch


def rows(folder: Path, content: str | bytes, *needed: str, wanted: str = "") -> tuple[list[Row], list[str]]:
    read = Table(write_files(folder, {"a.csv": content}) / "a.csv")
    return list(read.rows([(name,) for name in needed], [(wanted,)] if wanted else [])), read.notes


def test_columns_are_found_however_they_are_spelled_and_ordered(tmp_path: Path) -> None:
    (row,), notes = rows(tmp_path, b'\xef\xbb\xbf"B", a ,unheard_of\r\n"x, ""y""",3,?\r\n')
    assert (row.text("b"), row.whole("a"), notes) == ('x, "y"', 3, [])
    assert (row.text("c", "b"), row.text("c")) == ('x, "y"', None)


def test_a_missing_column_is_told_and_nothing_read_where_it_is_needed(tmp_path: Path) -> None:
    assert rows(tmp_path, "a,b\n1,2\n", "a", "c", "d") == ([], ["a.csv lacks the column c, d and was not read"])
    found, notes = rows(tmp_path, "a\n1\n", "a", wanted="new")
    assert len(found) == 1 and notes == ["a.csv lacks new"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n", "no header"),
        (b"a" * 300_000, "no header"),
        (b",".join([b"a"] * 5000) + b"\n", "no header"),
        (b"a,b\n1,2\n1\n1,2,3\n", "2 garbled rows"),
        (b'a,b\n1,2\n"1,2\n', "1 garbled rows"),
        (b"a,b\n1,2\n" + b"x" * 140_000 + b",2\n", "1 garbled rows"),
        (b"a,b\n1,2\n3,4", "1 garbled rows"),
        (b"a,b\n1,2\n\x00\x00\xff\n", "1 garbled rows"),
        (b"a,b\n1,2\n3\r,4\n", "1 garbled rows"),
        (b"\ra,b\n1,2\n", "no header"),
    ],
)
def test_what_does_not_fit_is_counted_and_what_does_is_read(content: bytes, said: str, tmp_path: Path) -> None:
    found, notes = rows(tmp_path, content)
    assert [row.whole("b") for row in found] == ([2] if "garbled" in said else [])
    assert len(notes) == 1 and said in notes[0]


def test_a_name_is_safe_to_print_and_no_longer_than_others_cut_it(tmp_path: Path) -> None:
    (escape, long), _ = rows(tmp_path, f"a,b\n\x1b[2Jx\x07,1\n{'n' * 5000},1\n")
    assert escape.name("a") == "\ufffd[2Jx\ufffd"
    assert long.name("a") == "n" * 2000


NUMBERS = {"7": 7, "1700000000000000001": 1700000000000000001, "7.0": 7}
NO_NUMBERS = ("7.5", "-1", "nan", "inf", "1e999", "1e31", "1_0", "٣", "9" * 41, "0x10", "", "seven")


@pytest.mark.parametrize(("text", "number"), [*NUMBERS.items(), *((text, None) for text in NO_NUMBERS)])
def test_a_number_is_a_number_or_nothing(text: str, number: int | None, tmp_path: Path) -> None:
    (row,), _ = rows(tmp_path, f"a,b\n{text},x\n")
    assert row.whole("a") == number


def test_no_more_is_read_than_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_ROWS", 10)
    found, notes = rows(tmp_path, "a\n" + "1\n" * 20)
    assert len(found) == 10 and "more than 10 rows" in notes[0]
    monkeypatch.setattr(table, "MOST_BYTES", 8)
    found, notes = rows(tmp_path, "a\n" + "1\n" * 20)
    assert len(found) == 3 and "is larger than" in notes[0]


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "secret").write_text("a\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "secret")
    (tmp_path / "folder.csv").mkdir()
    for name in ("pipe.csv", "link.csv", "folder.csv", "missing.csv"):
        read = Table(tmp_path / name)
        assert list(read.rows([("a",)])) == []
        assert len(read.notes) == 1 and "could not be read" in read.notes[0]


def test_files_are_found_where_tools_put_them_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"x.csv": ""})
    deep = "d/" * 9 + "b.csv"
    inside = write_files(tmp_path / "in", {"host/12_kernel_trace.csv": "", "a.csv": "", "a.txt": "", deep: ""})
    (inside / "way_out").symlink_to(outside)
    notes: list[str] = []
    assert find(inside, CSV, notes) == [inside / "a.csv", inside / "host/12_kernel_trace.csv"] and notes == []
    assert find(tmp_path / "nowhere", CSV, notes) == [] and "could not be read" in notes[0]


def test_many_files_and_large_ones_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {f"{number}.csv": "x" * 10 * number for number in range(1, 5)})
    monkeypatch.setattr(table, "MOST_BYTES", 30)
    notes: list[str] = []
    assert find(tmp_path, CSV, notes) == [tmp_path / "1.csv", tmp_path / "2.csv"]
    assert notes == ["2 files of results are too many or too large and were not read"]
    assert find(tmp_path, "4.csv".__eq__, notes) == [tmp_path / "4.csv"]
    monkeypatch.setattr(table, "_MOST_FILES", 1)
    assert find(tmp_path, CSV, notes) == [tmp_path / "1.csv"]
    monkeypatch.setattr(table, "_MOST_ENTRIES", 3)
    assert len(find(tmp_path, lambda name: True, [])) <= 1
    find(tmp_path, CSV, notes)
    assert any("3 entries or more" in note for note in notes)
