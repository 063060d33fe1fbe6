"""A profile as a page: one file that needs nothing else, made from the template in `page_template/`.

A name of the target's cannot become markup or a script: the data is JSON that no sign can end, and the page's policy
allows the template's own script and style by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from pathlib import Path
from typing import Any

from tools.plain_text import one_line, plain_values
from tools.profiler.categories import CATEGORIES
from tools.profiler.result import Profile
from tools.profiler.text import short_name

MOST_SPANS = 100_000  # on the timeline: some 3 MB of the file, and still drawn in a moment
_FOLDER = Path(__file__).with_name("page_template")
_TEMPLATE, _STYLE = _FOLDER / "page.html", _FOLDER / "page.css"
_SCRIPTS = [_FOLDER / f"{name}.js" for name in ("basics", "tables", "roofline", "timeline", "start")]  # in this order
_PLACEHOLDER = re.compile("@@([A-Z]+)@@")
_SHORT = 64  # columns of a name where there is little room; the whole of it is there, too
# In JSON these only stand in texts, where an escape means the same; in HTML they could end the block.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def render(profile: Profile) -> str:
    """The whole file, to be written as UTF-8. The same profile gives the same bytes.

    Raises: ValueError when the template does not have each placeholder once.
    """
    template, style = (file.read_text(encoding="utf-8") for file in (_TEMPLATE, _STYLE))
    script = "\n".join(file.read_text(encoding="utf-8") for file in _SCRIPTS)
    parts = {
        "TITLE": html.escape(f"{one_line(profile.entry, 80)} on {one_line(profile.device, 80)}: profile"),
        # everything is forbidden but the one script and the one style of the template
        "POLICY": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'",
        "STYLE": style,
        "SCRIPT": script,
        "PROFILE": as_json(profile),
    }
    found = sorted(_PLACEHOLDER.findall(template))
    if found != sorted(parts):
        raise ValueError(f"{_TEMPLATE.name} has the placeholders {found} and should have {sorted(parts)}")
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], template)


def as_json(profile: Profile) -> str:
    """What the script reads: ASCII without `<`, `>` and `&`; null for what is not a number; the timeline in columns."""
    shown = profile.model_dump(mode="json", exclude={"timeline"})
    for row, kernel in zip(shown["kernels"], profile.kernels, strict=True):
        row["short"] = short_name(kernel.name, _SHORT)
    spans = profile.timeline[:MOST_SPANS]
    columns: dict[str, Any] = {
        "start": [round(span.start_us, 3) for span in spans],
        "duration": [round(span.duration_us, 3) for span in spans],
        "kernel": [span.kernel for span in spans],
        "stream": [span.stream for span in spans],
        "cut": len(profile.timeline) - len(spans),
    }
    data = {"profile": plain_values(shown), "timeline": columns, "categories": CATEGORIES}
    return json.dumps(_finite(data), allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def _hash(block: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(f"\n{block}".encode()).digest()).decode()
