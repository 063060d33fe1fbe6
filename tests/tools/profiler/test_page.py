"""The page is one file that fetches nothing; what a target says stays data in it, whatever it is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.tools.profiler import sample_profile
from tools.profiler import page
from tools.profiler.categories import CATEGORIES
from tools.profiler.result import Profile


class Reader(HTMLParser):
    """What a browser makes of the file: its tags, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[str] = []
        self.title = ""
        self.within = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.within = tag
        if tag in ("script", "style"):
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        if self.within in ("script", "style"):
            self.blocks[-1] += data
        elif self.within == "title":
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.blocks[1])
        return found


def test_the_markup_is_the_same_whatever_is_in_the_profile() -> None:
    empty = Profile(entry="", device="", calls=0, call_us=0, busy_us=0, span_us=0, idle_share=0)
    for sample in sample_profile.EVERY:
        assert Reader(page.render(sample())).tags == Reader(page.render(empty)).tags


@pytest.mark.parametrize("name", sample_profile.HOSTILE)
def test_no_name_ends_the_data(name: str) -> None:
    data = page.as_json(_with_name(name))
    assert data.isascii() and not set(data) & set("<>&\x00\n")
    read = json.loads(data)["profile"]
    clean = "".join(sign if sign.isprintable() else "\ufffd" for sign in name)[:4000]
    assert read["kernels"][0]["name"] == clean == read["entry"]


def test_a_name_that_is_a_placeholder_is_not_filled_in_and_the_title_is_text() -> None:
    shown = page.render(_with_name("@@POLICY@@ @@PROFILE@@"))
    assert "@@POLICY@@ @@PROFILE@@" in Reader(shown).data["profile"]["entry"]
    assert shown.count("default-src") == 1
    assert Reader(page.render(_with_name("</title><svg onload=alert(1)>"))).title.startswith("</title><svg onload")


def test_the_policy_allows_the_script_and_the_style_of_the_template_and_nothing_else() -> None:
    read = Reader(page.render(sample_profile.h200_decoder()))
    policy = next(attributes["content"] for tag, attributes in read.tags if "http-equiv" in attributes)
    style, _, script = read.blocks
    assert policy == (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_a_number_that_is_none_is_null() -> None:
    data = json.loads(page.as_json(sample_profile.hostile()), parse_constant=lambda name: pytest.fail(name))
    row = data["profile"]["kernels"][-1]
    assert [row[key] for key in ("calls", "time_us", "share", "bytes", "gbps")] == [None] * 5
    assert data["timeline"]["start"][-1] is None and data["timeline"]["duration"][-1] is None


def test_the_timeline_is_in_columns_and_what_is_cut_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = sample_profile.h200_decoder()
    monkeypatch.setattr(page, "MOST_SPANS", 200)
    columns, span = json.loads(page.as_json(profile))["timeline"], profile.timeline[1]
    assert columns["cut"] == 43
    shown = [columns[name][1] for name in ("start", "duration", "kernel", "stream")]
    assert shown == [pytest.approx(span.start_us), pytest.approx(span.duration_us), span.kernel, span.stream]


def test_every_category_has_a_look_of_its_own() -> None:
    script = Reader(page.render(sample_profile.nothing_seen())).blocks[2]
    table = re.search(r"const LOOKS = \{(.*?)\n\};", script, re.DOTALL)
    assert table
    looks = dict(re.findall(r'"([^"]+)": (\[[^]]*\])', table[1]))
    assert set(looks) == set(CATEGORIES) and len(set(looks.values())) == len(CATEGORIES)


def _with_name(name: str) -> Profile:
    profile = sample_profile.h200_decoder()
    profile.entry = profile.kernels[0].name = name
    return profile


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_nothing_is_fetched_and_no_markup_is_made_of_data() -> None:
    read = Reader(page.render(sample_profile.h200_decoder()))
    assert not {tag for tag, _ in read.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert not [attributes for _, attributes in read.tags if {"src", "href", "style", "onclick"} & set(attributes)]
    template = read.blocks[0] + read.blocks[2]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|fetch\(|@import"
        r"|url\(|XMLHttpRequest|import\(|https?://(?!www\.w3\.org/2000/svg)",
        template,
    )
