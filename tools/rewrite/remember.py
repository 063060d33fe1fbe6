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
from tools.rewrite.sites import at_frame, by_function, largest_first

WORTH = 0.01  # of a call: comparing takes its time


def find(observation: Observation) -> list[Site]:
    """One site for each function that calls such modules."""
    found = []
    for rows in by_function(row for row in observation.again if row.share >= WORTH):
        calls = [{"line": row.frames[0].line, "attribute": row.attribute} for row in rows]
        detail = {"calls": calls, "constant": all(row.constant for row in rows)}
        last = max(row.frames[0].line for row in rows)
        site = at_frame("again", rows[-1].frames[0], sum(row.share for row in rows), line_end=last, **detail)
        found.append(site.model_copy(update={"line": rows[0].frames[0].first_line}))
    return largest_first(found)


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.detail["calls"][0]["line"])
    this = next((parameter.name.value for parameter in parameters(function)), "")
    ours = use(source, REMEMBERED, site)
    for wanted in site.detail["calls"]:
        name = f"{this}.{wanted['attribute']}"
        call = next((c for c in source.at(wanted["line"], function, cst.Call) if dotted(c.func) == name), None)
        if call is None:
            raise CannotRewrite(f"{name} is called by another name at {source.path}:{wanted['line']}")
        source.replace(call, call.with_changes(func=cst.Name(ours), args=[cst.Arg(call.func), *call.args]))
    return source.changes()
