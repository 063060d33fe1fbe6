"""Remember what a module gave: a part of a model that is called again and again on what does not change.

The call stays where it is and goes through `remembered`, which compares what the result depends on. Calls by another
name than the path in the model, such as those in a loop over layers, stay.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import REMEMBERED, use
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import dotted, parameters
from tools.rewrite.sites import at_frame, largest_first

WORTH = 0.01  # of a call: comparing takes its time


def find(observation: Observation) -> list[Site]:
    """One site for each function that calls such modules."""
    found: dict[tuple[str, int], Site] = {}
    for row in observation.again:
        if not row.frames or row.share < WORTH:
            continue
        frame = row.frames[0]
        old = found.get((frame.file, frame.first_line))
        calls = [*(old.detail["calls"] if old else []), {"line": frame.line, "attribute": row.attribute}]
        share = row.share + ((old.share if old else 0) or 0)
        constant = row.constant and (not old or old.detail["constant"])
        site = at_frame("again", frame, share, calls=calls, constant=constant)
        last = max(call["line"] for call in calls)
        found[frame.file, frame.first_line] = site.model_copy(update={"line": frame.first_line, "line_end": last})
    return largest_first(found.values())


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.detail["calls"][0]["line"])
    this = next((parameter.name.value for parameter in parameters(function)), "")
    used = use(source, REMEMBERED, site.detail["module"])
    for wanted in site.detail["calls"]:
        name = f"{this}.{wanted['attribute']}"
        call = next((c for c in source.at(wanted["line"], function, cst.Call) if dotted(c.func) == name), None)
        if call is None:
            raise CannotRewrite(f"{name} is called by another name at {source.path}:{wanted['line']}")
        source.replace(call, call.with_changes(func=cst.Name(used.name), args=[cst.Arg(call.func), *call.args]))
    return {**used.files, source.path: source.result()}
