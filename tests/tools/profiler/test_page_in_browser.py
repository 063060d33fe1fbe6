"""In a real browser the page draws without an error, sorts, filters and zooms, and no name breaks out of its text.

The page tries itself out when its address ends in `#self-check`; here its findings are compared with Python's.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.tools.profiler import sample_profile
from tools.profiler import page
from tools.profiler.result import Profile

NUMBERS = {
    "share": "share",
    "calls": "calls",
    "time": "time_us",
    "mean": "mean_us",
    "memory": "gbps",
    "compute": "tflops",
    "limit": "speed_of_light",
}
TEXTS = {"kernel": "name", "cause": "cause", "category": "category"}
# what the template and its script make; anything else came from a name
_TAGS = """
a b button canvas circle code dd details div dl dt footer g h1 h2 h3 header i input li line main noscript p path script
section small span strong summary svg table tbody td text th thead tr ul
"""
ELEMENTS = set(_TAGS.split())
OPTIONS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --virtual-time-budget=5000 "
    "--enable-logging=stderr --v=0 --dump-dom"
)


@dataclass(frozen=True)
class Opened:
    """What the browser was left with, and what it complained about."""

    text: str
    found: dict[str, Any]
    console: list[str]


class _Page(HTMLParser):
    found = ""
    text = ""
    hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden = tag in ("script", "style", "noscript")
        self.found = dict(attrs).get("data-self-check") or self.found

    def handle_data(self, data: str) -> None:
        self.text += "" if self.hidden else f"{data} "


@pytest.fixture(scope="session")
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        reason = "there is no Chromium here (Debian: apt-get install chromium)"
        if os.environ.get("RATCHET_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def opened(browser: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Opened]:
    """Opens a page in a window so wide; the same page only once."""
    folder = tmp_path_factory.mktemp("page")

    @functools.cache
    def open_page(page_text: str, *, width: int = 1280) -> Opened:
        path = folder / "page.html"
        path.write_text(page_text, encoding="utf-8")
        options = f"--user-data-dir={folder / 'browser'} --window-size={width},900 {OPTIONS}".split()
        command = [browser, *options, f"{path.as_uri()}#self-check"]
        ended = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=100)
        assert ended.returncode == 0, ended.stderr[-2000:]
        read = _Page()
        read.feed(ended.stdout)
        console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
        return Opened(" ".join(read.text.split()), json.loads(read.found or "{}"), console)

    return open_page


@pytest.mark.parametrize("sample", sample_profile.EVERY, ids=lambda sample: sample.__name__)
@pytest.mark.parametrize("width", [1280, 480])
def test_the_page_fits_and_has_no_error(
    sample: Callable[[], Profile], width: int, opened: Callable[..., Opened]
) -> None:
    shown = opened(page.render(sample()), width=width)
    assert shown.console == []
    assert shown.found["failures"] == []
    assert shown.found["wider"] <= 0


@pytest.mark.parametrize("sample", [sample_profile.h200_decoder, sample_profile.hostile])
def test_every_column_sorts_in_both_directions(sample: Callable[[], Profile], opened: Callable[..., Opened]) -> None:
    profile = sample()
    rows = json.loads(page.as_json(profile))["profile"]["kernels"]
    sorts = opened(page.render(profile)).found["sorts"]
    assert [(each["column"], each["direction"]) for each in sorts] == [
        (column, direction)
        for column in ("#", "kernel", *NUMBERS, "cause", "category")
        for direction in (("ascending", "descending") if column in TEXTS else ("descending", "ascending"))
    ]
    for each in sorts:
        assert each["order"] == _sorted(rows, each["column"], each["direction"]), (each["column"], each["direction"])


def test_the_filter_leaves_the_kernels_that_have_all_words(opened: Callable[..., Opened]) -> None:
    rows = sample_profile.h200_decoder().kernels
    filters = opened(page.render(sample_profile.h200_decoder())).found["filters"]
    assert sorted(filters["gemm"]) == [index for index, row in enumerate(rows) if row.category == "gemm"]
    assert sorted(filters["MLP model.py"]) == [index for index, row in enumerate(rows) if row.module == "MLP"]
    assert filters["no kernel has this name"] == []
    assert len(filters[""]) == len(rows)


def test_the_timeline_zooms_by_wheel_and_drag_and_comes_back(opened: Callable[..., Opened]) -> None:
    found = opened(page.render(sample_profile.h200_decoder())).found
    start, wheel, drag, back = found["zooms"]
    lengths = [each["to"] - each["from"] for each in found["zooms"]]
    assert lengths[0] == start["whole"] == pytest.approx(sample_profile.h200_decoder().span_us, rel=1e-6)
    assert lengths[1] < 0.7 * lengths[0] and wheel["from"] > 0
    assert lengths[2] == pytest.approx(lengths[1] / 2, rel=0.02)
    assert wheel["from"] < drag["from"] < drag["to"] < wheel["to"]
    assert back == {**start, "name": "key"}
    assert "elementwise_kernel" in found["tip"], "the first launch is under the pointer"


def test_kernels_whose_work_is_known_are_on_the_roofline_and_a_click_opens_one_in_the_table(
    opened: Callable[..., Opened],
) -> None:
    rows = sample_profile.h200_decoder().kernels
    known = [(row.share, index) for index, row in enumerate(rows) if row.flops and row.bytes]
    shown = opened(page.render(sample_profile.h200_decoder()))
    assert shown.found["points"] == len(known) > 3
    assert "memory: 4,800 GB/s" in shown.text and "float16, bfloat16: 989 TFLOP/s" in shown.text
    assert shown.found["revealed"] == {"index": max(known)[1], "open": "detail", "focused": True}


def test_what_is_not_known_is_said(opened: Callable[..., Opened]) -> None:
    shown = opened(page.render(sample_profile.cpu_decoder()))
    assert "What this device can reach is not known" in shown.text
    assert shown.found["points"] == 0 and "svg" not in shown.found["elements"]
    text = opened(page.render(sample_profile.nothing_seen())).text
    for said in ("No kernel", "No launch", "No module", "Nothing is predicted", "unclassified 0.0%", "is cut off."):
        assert said in text
    assert "NaN" not in text and "undefined" not in text and "Infinity" not in text


def test_no_name_breaks_out(opened: Callable[..., Opened]) -> None:
    profile = sample_profile.hostile()
    shown = opened(page.render(profile))
    found = shown.found
    assert set(found["elements"]) <= ELEMENTS
    assert found["handlers"] == [] and found["failures"] == []
    names = json.loads(page.as_json(profile))["profile"]["kernels"]
    assert sorted(found["names"]) == sorted(row["name"] for row in names)
    assert all(link.startswith("file:///") and link.endswith(".py") for link in found["links"]) and found["links"]
    assert "NaN" not in shown.text and "undefined" not in shown.text


def test_20_000_launches_are_drawn(opened: Callable[..., Opened]) -> None:
    shown = opened(page.render(sample_profile.many_spans(20_000)))
    assert shown.console == [] and shown.found["spans"] == 20_000
    assert shown.found["colours"] >= 5
    lengths = [each["to"] - each["from"] for each in shown.found["zooms"]]
    assert lengths[2] < lengths[1] < lengths[0]


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ("drawHead();", "drawHead(); broken();"),  # not the script that the policy knows
        ("<main>\n", '<main>\n<img src="x" onerror="alert(1)">\n'),
        ("<main>\n", "<main>\n<script>alert(1)</script>\n"),
        ('id="data">', 'id="data"></script><script>alert(1)</script>'),
    ],
)
def test_what_breaks_out_of_the_data_is_refused(whole: str, broken: str, opened: Callable[..., Opened]) -> None:
    text = page.render(sample_profile.h200_decoder())
    assert whole in text
    shown = opened(text.replace(whole, broken, 1))
    assert any("Content Security Policy" in line for line in shown.console)


def test_script_errors_are_noticed(
    opened: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "start.js"
    script.write_text(page._SCRIPTS[-1].read_text().replace("drawHead();", "drawHead(); broken();"))
    monkeypatch.setattr(page, "_SCRIPTS", [*page._SCRIPTS[:-1], script])
    shown = opened(page.render(sample_profile.h200_decoder()))
    assert any("broken is not defined" in line for line in shown.console)


def _sorted(rows: list[dict[str, Any]], column: str, direction: str) -> list[int]:
    """Row numbers in the order that the column should give: equal ones as they came, what is not known last."""
    reverse = direction == "descending"
    if column in TEXTS:
        names = [row[TEXTS[column]].lower().encode("utf-16-be") for row in rows]
        return sorted(range(len(rows)), key=names.__getitem__, reverse=reverse)
    values = [row[NUMBERS.get(column, "share")] for row in rows]
    if column == "#":
        ranked = sorted(range(len(rows)), key=lambda at: -1.0 if values[at] is None else values[at], reverse=True)
        return ranked if direction == "ascending" else ranked[::-1]
    known = [at for at, value in enumerate(values) if value is not None]
    known.sort(key=lambda at: values[at], reverse=reverse)
    return known + [at for at, value in enumerate(values) if value is None]
