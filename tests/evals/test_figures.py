"""Every measured figure of README, docs and skills is in a file of `evals/results/` that the text names beside it.

Checked are all figures of a sentence or table row that names a file, and speedups like 1.38× everywhere: where a table
names no file, those of the text before it count. A sentence says so where others published the figure, or where it was
measured before result files were kept.
"""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "skills").rglob("*.md"))]
# a path, and where only one row is meant the beginning of its date: `evals/results/results.jsonl`, 2026-11-23T07:50
CITED = re.compile(r"(?:evals|\.\.)/(results/[\w./-]*\w)(?:[`)]{0,2},?\s+(20\d\d-\d\d-\d\dT\d\d:\d\d))?")
FIGURE = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)(?:×(?! ?\d)|\s(?:us|µs|ms|s|min|%|GB/s)(?!\w))")
SPEEDUP = re.compile(r"(?<![\w.])(\d+\.\d+)×(?: \((\d+\.\d+) to (\d+\.\d+)\))?")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?")
NOT_OURS = re.compile(r"datasheet|claim|derived|no raw samples")


def files_of(path: str) -> list[Path]:
    """The file, and the raw samples beside a page; all files of a folder."""
    named = ROOT / "evals" / path
    if named.is_dir():
        return sorted(named.iterdir())
    return [each for each in (named, named.with_suffix(".json.gz")) if each.is_file()]


@cache
def numbers(path: str, date: str = "") -> frozenset[float]:
    """All numbers in a cited file; of a file of rows those of the row with that date."""
    found: set[float] = set()
    for file in files_of(path):
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
        lines = (line for line in text.splitlines() if date in line)
        found |= {float(number) for line in lines for number in NUMBER.findall(line.replace(",", " , "))}
        found |= {float(number.replace(",", "")) for number in re.findall(r"\b\d{1,3}(?:,\d{3})+\b", text)}
    return frozenset(found)


def is_in(figure: str, cited: list[tuple[str, str]]) -> bool:
    """Whether a number there is this figure, rounded."""
    value, digits = float(figure.replace(",", "")), len(figure.partition(".")[2])
    return any(abs(number - value) <= 10**-digits * (1 if digits else 0.5) for one in cited for number in numbers(*one))


def blocks(text: str) -> Iterator[str]:
    """Headings, paragraphs, list items and table rows of a page, without its code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.split(r"\n(?=\s*(?:\n|\||- |\d+\. |#))", text)


def sentences(block: str) -> list[str]:
    return [block] if block.lstrip().startswith("|") else re.split(r"(?<=[.!?])\s+(?=[A-Z])", block)


def wrong(text: str) -> Iterator[str]:
    """What is measured by the text's words and not in the files that it names."""
    before: list[tuple[str, str]] = []
    for block in blocks(text):
        if block.lstrip().startswith("#"):
            before = []
        before = CITED.findall(block) or before
        for sentence in sentences(block):
            cited = CITED.findall(sentence)
            yield from (f"there is no evals/{path}" for path, _ in cited if not files_of(path))
            if NOT_OURS.search(sentence):
                continue
            figures = [figure for speedup in SPEEDUP.findall(sentence) for figure in speedup if figure]
            figures += FIGURE.findall(sentence) if cited else []
            if figures and not before:
                yield f"no file is named: {sentence.strip()}"
            yield from (f"{each} is not in {before}: {sentence.strip()}" for each in figures if not is_in(each, before))


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_measured_figure_is_in_the_file_that_is_named_beside_it(page: Path) -> None:
    assert list(wrong(page.read_text(encoding="utf-8"))) == []


def test_a_figure_that_nothing_holds_is_found() -> None:
    row = "`evals/results/results.jsonl`, 2026-11-23T07:50"
    assert list(wrong(f"It was 3.73× (3.53 to 4.03) over eager ({row}).")) == []
    for text in (
        "It was 3.73× (3.53 to 4.03) over eager.",
        f"It was 3.79× (3.53 to 4.03) over eager ({row}).",
        f"It was 3.73× ({row}), which took 77 ms (`evals/results/evidence/h200/20261121.md`).",
        "It took 5 ms (`evals/results/evidence/none.md`).",
    ):
        assert list(wrong(text)) != [], text


def test_code_and_texts_name_files_that_are_there() -> None:
    command = ["git", "-C", str(ROOT), "grep", "-hIoE", r"evals/results/[A-Za-z0-9_./-]*[A-Za-z0-9_]"]
    named = subprocess.run([*command, "--", "*.py", "*.md", "*.toml", ":!tests/evals"], capture_output=True, text=True)
    assert sorted({path for path in named.stdout.split() if not (ROOT / path).exists()}) == []
